"""`siteatlas db upgrade-server`: from PostgreSQL 16, which the wheel brings too, to the current."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from siteatlas.errors import DatabaseInUse
from siteatlas.settings import Settings
from siteatlas.storage.embedded.files import (
    MAJOR_VERSION,
    Programs,
    make_private,
    programs_of_major,
    server_user_for,
)
from siteatlas.storage.embedded.server import FIRST_STATEMENTS, EmbeddedServer
from siteatlas.storage.schema import upgrade_schema
from siteatlas.storage.server_upgrade import upgrade_embedded_server
from siteatlas.storage.session import create_database
from tests.fixtures.commands import Machine
from tests.fixtures.embedded import ClientProcess, data_directory, is_running, start_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

OLD = "16"
FEED_ID = "SELECT feed_id::text FROM feed_head"
ADD_SITE = (
    "INSERT INTO domains (domain, base_url, created_by) "
    "SELECT 'old.example', 'https://old.example/', id FROM users LIMIT 1"
)


def make_old_server(data_dir: Path, programs: Programs) -> None:
    """A data directory as an earlier major version would have made it."""
    data_dir.mkdir(mode=0o755)
    user = server_user_for(data_dir)
    cluster = data_dir / "postgres"
    make_private(cluster, user)
    initdb = [programs.path("initdb"), "-D", str(cluster), "--username=postgres"]
    initdb += ["--auth-local=trust", "--encoding=UTF8", "--locale=C", "--data-checksums"]
    assert user.run(initdb).returncode == 0
    user.write(cluster / "postgresql.conf", "include '../siteatlas.conf'\n", append=True)
    (data_dir / "siteatlas.conf").touch()
    single = [programs.path("postgres"), "--single", "-D", str(cluster), "postgres"]
    assert user.run(single, stdin=FIRST_STATEMENTS).returncode == 0


def query(server: EmbeddedServer, *statements: str, upgrade: bool = False) -> Any:
    """Run statements on a server; the value of the last one."""

    async def run() -> Any:
        database = create_database(server.url, behind_pooler=False)
        if upgrade:
            await upgrade_schema(database.engine)
        async with database.engine.begin() as connection:
            results = [await connection.execute(text(statement)) for statement in statements]
            value = results[-1].scalar() if results[-1].returns_rows else None
        await database.close()
        return value

    return asyncio.run(run())


@pytest.mark.full
def test_the_data_of_an_older_server_is_refused_and_can_be_converted():
    with data_directory() as folder:
        data_dir = folder / "data"
        programs = programs_of_major(OLD)
        make_old_server(data_dir, programs)
        with EmbeddedServer(data_dir, announce=lambda _: None, programs=programs) as server:
            feed_id = query(server, ADD_SITE, FEED_ID, upgrade=True)
        machine = Machine(data_dir)

        refused = machine.run("domains", "list")
        assert refused.returncode == 4
        assert "embedded_version_mismatch" in refused.stderr
        assert "siteatlas db upgrade-server" in refused.stderr

        obstacle = data_dir / "postgres.new"
        obstacle.touch()
        failed = machine.run("db", "upgrade-server")
        assert failed.returncode == 4, failed.stderr
        assert (data_dir / "postgres" / "PG_VERSION").read_text().strip() == OLD
        assert not list(data_dir.glob("postgres-*"))
        obstacle.unlink()

        upgraded = machine.run("db", "upgrade-server", "--programs", str(programs.folder / "bin"))
        assert upgraded.returncode == 0, upgraded.stderr
        assert f"from PostgreSQL {OLD} to {MAJOR_VERSION}: 1 site," in upgraded.stderr
        assert (data_dir / f"postgres-{OLD}" / "PG_VERSION").read_text().strip() == OLD
        assert not list(data_dir.glob("*.backup"))
        assert machine.json("domains", "list")["items"][0]["domain"] == "old.example"
        with EmbeddedServer(data_dir, announce=lambda _: None) as server:
            assert query(server, FEED_ID) == feed_id
        again = machine.run("db", "upgrade-server")
        assert again.returncode == 2
        assert "already" in again.stderr


@contextmanager
def old_data() -> Iterator[tuple[Path, Programs]]:
    """The data directory of an older server, which has been used, and its programs."""
    with data_directory() as folder:
        data_dir, programs = folder / "data", programs_of_major(OLD)
        make_old_server(data_dir, programs)
        with EmbeddedServer(data_dir, announce=lambda _: None, programs=programs) as server:
            query(server, ADD_SITE, upgrade=True)
        yield data_dir, programs


def major_in(cluster: Path) -> str:
    """The major version of PostgreSQL that wrote a data directory."""
    return (cluster / "PG_VERSION").read_text().strip()


def test_old_data_that_is_kept_already_is_noticed_before_anything_is_done():
    with data_directory() as folder:
        for name in ("postgres", f"postgres-{OLD}"):
            (folder / name).mkdir(mode=0o700)
            (folder / name / "PG_VERSION").write_text(f"{OLD}\n")
        result = Machine(folder).run("db", "upgrade-server")
        assert result.returncode == 4
        assert f"postgres-{OLD} exists already" in result.stderr
        assert sorted(path.name for path in folder.iterdir()) == ["postgres", f"postgres-{OLD}"]


@pytest.mark.full
def test_a_server_that_is_in_use_is_not_converted_and_leaves_no_backup():
    with old_data() as (data_dir, programs):
        with EmbeddedServer(data_dir, announce=lambda _: None, programs=programs):
            result = Machine(data_dir).run("db", "upgrade-server")
        assert "database_in_use" in result.stderr
        assert major_in(data_dir / "postgres") == OLD
        assert not list(data_dir.glob("*postgres-*"))


@pytest.mark.full
def test_a_new_server_that_is_in_use_is_not_deleted_if_the_upgrade_fails():
    with old_data() as (data_dir, _):
        users: list[ClientProcess] = []

        def interfere(text: str) -> None:
            """Damage the backup, and start a process that uses the new server."""
            if text.startswith("Restoring"):
                backup = data_dir / f"postgres-{OLD}.backup"
                backup.write_bytes(backup.read_bytes()[:-100])
                users.append(start_client(data_dir))

        try:
            with pytest.raises(DatabaseInUse, match=f"in {data_dir}/postgres-{OLD}"):
                asyncio.run(upgrade_embedded_server(Settings(data_dir=data_dir), None, interfere))
            assert is_running(data_dir)
            assert major_in(data_dir / "postgres") == str(MAJOR_VERSION)
            assert major_in(data_dir / f"postgres-{OLD}") == OLD
            assert not list(data_dir.glob("*.backup"))
        finally:
            for user in users:
                user.finish()


def test_without_programs_of_its_version_nothing_is_touched():
    with data_directory() as folder:
        (folder / "postgres").mkdir(mode=0o700)
        (folder / "postgres" / "PG_VERSION").write_text("11\n")
        result = Machine(folder).run("db", "upgrade-server")
        assert result.returncode == 4
        assert "--programs /usr/lib/postgresql/11/bin" in result.stderr
        assert [path.name for path in folder.iterdir()] == ["postgres"]
