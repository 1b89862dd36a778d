"""Each refusal of a pooler has its own message, although all have the same SQLSTATE."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy.engine import URL, make_url

from siteatlas.errors import DatabaseRefused, DatabaseUnavailable
from siteatlas.settings import Secret, Settings
from siteatlas.storage.startup import open_storage
from tests.fixtures.database import PostgresServer
from tests.fixtures.pooler import Pooler, running_pooler

pytestmark = pytest.mark.pgbouncer

NAME = "member"
PASSWORD = "secret-word"


def address(pooler: Pooler, database: str, username: str = NAME, password: str = PASSWORD) -> str:
    """The way through the pooler."""
    url = make_url(pooler.url).set(username=username, password=password, database=database)
    return url.render_as_string(hide_password=False)


async def opening(url: str) -> None:
    """What every command does first."""
    async with open_storage(Settings(database_url=Secret(url))):
        pass


@pytest.mark.parametrize(
    "wrong",
    [{"password": "wrong"}, {"username": "nobody"}, {"database": "nothing"}],
    ids=["password", "user", "database"],
)
async def test_a_wrong_login_is_refused_with_a_message(
    postgres_server: PostgresServer,
    pgbouncer_program: str,
    database_name: str,
    wrong: dict[str, str],
) -> None:
    only = (NAME, PASSWORD, database_name)
    with running_pooler(pgbouncer_program, postgres_server.admin_url, only=only) as pooler:
        await opening(address(pooler, database=database_name))
        with pytest.raises(DatabaseRefused) as raised:
            await opening(address(pooler, **{"database": database_name, **wrong}))
    assert raised.value.code == "database_refused"


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        pytest.param(lambda url: url.set(username="no_such_role"), DatabaseRefused, id="role"),
        # The pooler waits before it reports that the server is not there.
        pytest.param(
            lambda url: url.update_query_dict({"port": "1"}),
            DatabaseUnavailable,
            id="port",
            marks=pytest.mark.full,
        ),
    ],
)
async def test_a_server_that_the_pooler_cannot_use_is_reported(
    postgres_server: PostgresServer,
    pgbouncer_program: str,
    database_name: str,
    broken: Callable[[URL], URL],
    kind: type[DatabaseUnavailable],
) -> None:
    behind = broken(make_url(postgres_server.admin_url)).render_as_string(hide_password=False)
    only = (NAME, PASSWORD, database_name)
    with (
        running_pooler(pgbouncer_program, behind, only=only) as pooler,
        pytest.raises(kind) as raised,
    ):
        await opening(address(pooler, database=database_name))
    assert type(raised.value) is kind
