"""A database that refuses us, or an address that cannot work: startup names the reason.

None of them is an internal error. TLS is served by a front, because the embedded server has none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select

from siteatlas.errors import (
    ConfigurationError,
    DatabaseConnectionsExhausted,
    DatabaseError,
    DatabaseRefused,
    DatabaseRightsMissing,
    DatabaseTlsFailed,
    DatabaseUnavailable,
    SchemaNewer,
    SchemaOutdated,
    SiteatlasError,
)
from siteatlas.settings import Secret, Settings
from siteatlas.storage.embedded.files import PORT
from siteatlas.storage.startup import open_storage
from tests.fixtures.guarded_server import GuardedServer, guarded_server
from tests.fixtures.raw_server import Connection, RawServer
from tests.fixtures.tls_front import Certificates, tls_front

NOT_PEM = __file__


@dataclass(frozen=True, slots=True)
class Place:
    """The server with its fronts, and the addresses that lead to them."""

    server: GuardedServer
    certificates: Certificates
    ports: dict[str, int]

    def url(self, front: str = "none", **parts: str) -> str:
        """An address; parts that begin with `@` name a certificate or key."""
        named = {
            name: self.certificates.file(value[1:]) if value.startswith("@") else value
            for name, value in parts.items()
        }
        return self.server.url(port=self.ports[front], **named)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        server = stack.enter_context(guarded_server())
        certificates = Certificates(tmp_path_factory.mktemp("certificates"), server.address)
        target = (server.address, PORT)
        good = stack.enter_context(tls_front(target, certificates))
        elsewhere = stack.enter_context(tls_front(target, certificates, shown="elsewhere"))
        asking = stack.enter_context(tls_front(target, certificates, ask_client=True))
        ports = {"none": PORT, "tls": good, "elsewhere": elsewhere, "asking": asking}
        yield Place(server, certificates, ports)


@pytest.fixture(autouse=True)
def no_certificates_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


async def opening(url: str) -> None:
    """What every command does first."""
    async with open_storage(Settings(database_url=Secret(url))):
        pass


@dataclass(frozen=True, slots=True)
class Refusal:
    """An address, and what must be said of it."""

    kind: type[SiteatlasError]
    words: str
    parts: dict[str, str] = field(default_factory=dict)


REFUSALS = {
    "a wrong password": Refusal(
        DatabaseRefused, "password authentication failed", {"password": "x"}
    ),
    "no password": Refusal(DatabaseRefused, "password", {"password": ""}),
    "an unknown role": Refusal(DatabaseRefused, "authentication failed", {"user": "who"}),
    "a role without login": Refusal(
        DatabaseRefused, "not permitted to log in", {"user": "no_login"}
    ),
    "an expired password": Refusal(DatabaseRefused, "authentication failed", {"user": "expired"}),
    "a role that is rejected": Refusal(DatabaseRefused, "pg_hba.conf", {"user": "unwanted"}),
    "a role without connections": Refusal(
        DatabaseConnectionsExhausted, "connections", {"user": "crowded"}
    ),
    "an unknown database": Refusal(DatabaseRefused, '"who" does not exist', {"database": "who"}),
    "a closed database": Refusal(
        DatabaseRefused, "not currently accepting connections", {"database": "closed"}
    ),
    "a database of others": Refusal(
        DatabaseRightsMissing, "owner", {"database": "private", "user": "stranger"}
    ),
    "tables of others": Refusal(DatabaseRightsMissing, "owner", {"user": "stranger"}),
    "no schema": Refusal(SchemaOutdated, "siteatlas db upgrade", {"database": "empty"}),
    "no TLS there": Refusal(DatabaseTlsFailed, "does not support TLS", {"sslmode": "require"}),
    "no TLS to verify": Refusal(
        DatabaseTlsFailed,
        "does not support TLS",
        {"sslmode": "verify-full", "sslrootcert": "@ca.crt"},
    ),
    "no authority": Refusal(
        ConfigurationError, "root.crt", {"front": "tls", "sslmode": "verify-ca"}
    ),
    "no authority for a name": Refusal(
        ConfigurationError, "root.crt", {"front": "tls", "sslmode": "verify-full"}
    ),
    "another authority": Refusal(
        DatabaseTlsFailed,
        "unable to get local issuer certificate",
        {"front": "tls", "sslmode": "verify-ca", "sslrootcert": "@other-ca.crt"},
    ),
    "another authority, required": Refusal(
        DatabaseTlsFailed,
        "unable to get local issuer certificate",
        {"front": "tls", "sslmode": "require", "sslrootcert": "@other-ca.crt"},
    ),
    "the certificate of another host": Refusal(
        DatabaseTlsFailed,
        "mismatch",
        {"front": "elsewhere", "sslmode": "verify-full", "sslrootcert": "@ca.crt"},
    ),
    "an authority that is not there": Refusal(
        ConfigurationError,
        "/nowhere.crt",
        {"front": "tls", "sslmode": "verify-ca", "sslrootcert": "/nowhere.crt"},
    ),
    "an authority that is none": Refusal(
        ConfigurationError,
        "sslrootcert in DATABASE_URL",
        {"front": "tls", "sslmode": "verify-ca", "sslrootcert": NOT_PEM},
    ),
    "the authorities of the system": Refusal(
        ConfigurationError,
        "sslrootcert=system",
        {"front": "tls", "sslmode": "verify-full", "sslrootcert": "system"},
    ),
    "a certificate that is not there": Refusal(
        ConfigurationError,
        "sslcert in DATABASE_URL",
        {"front": "asking", "sslmode": "require", "sslcert": "/nowhere.crt"},
    ),
    "a key of another certificate": Refusal(
        ConfigurationError,
        "sslcert and sslkey",
        {
            "front": "asking",
            "sslmode": "require",
            "sslcert": "@client.crt",
            "sslkey": "@server.key",
        },
    ),
    "no certificate where one is asked for": Refusal(
        DatabaseUnavailable, "", {"front": "asking", "sslmode": "require"}
    ),
}
ACCEPTED = {
    "without a word of TLS": {"front": "tls"},
    "unsecured": {"sslmode": "disable"},
    "preferred, not there": {"sslmode": "prefer"},
    "required": {"front": "tls", "sslmode": "require"},
    "verified by its authority": {
        "front": "elsewhere",
        "sslmode": "verify-ca",
        "sslrootcert": "@ca.crt",
    },
    "verified by authority and name": {
        "front": "tls",
        "sslmode": "verify-full",
        "sslrootcert": "@ca.crt",
    },
    "with a certificate of our own": {
        "front": "asking",
        "sslmode": "verify-full",
        "sslrootcert": "@ca.crt",
        "sslcert": "@client.crt",
        "sslkey": "@client.key",
    },
}
ADDRESSES = {
    "hello": (ConfigurationError, "DATABASE_URL"),
    "mysql://u@127.0.0.1/x": (ConfigurationError, "postgresql://"),
    "postgresql://u@127.0.0.1": (ConfigurationError, " database"),
    "postgresql://u@127.0.0.1:abc/x": (ConfigurationError, "port"),
    "postgresql://u@127.0.0.1:99999/x": (ConfigurationError, "port"),
    "postgresql://u@127.0.0.1:0/x": (ConfigurationError, "port"),
    "postgresql://u@127.0.0.1/x?port=abc": (ConfigurationError, "port"),
    "postgresql://u@127.0.0.1/x?sslmode=maybe": (ConfigurationError, "sslmode: maybe"),
    "postgresql://u@127.0.0.1/x?sslmode=require&sslmode=disable": (ConfigurationError, "sslmode"),
    "postgresql://u@127.0.0.1:1/x": (DatabaseUnavailable, " 127.0.0.1:1 "),
    "postgresql://u@[::1]:1/x": (DatabaseUnavailable, "::1"),
    "postgresql://u@[::1:1/x": (SiteatlasError, "DATABASE_URL"),
    "postgresql://u@/x?host=/nowhere": (DatabaseUnavailable, os.strerror(errno.ENOENT)),
    "postgresql://u:p@ss@127.0.0.1:1/x": (ConfigurationError, "%40"),
    "postgresql://u@no-such-host.invalid/x": (DatabaseUnavailable, " no-such-host.invalid:5432 "),
    "postgresql://u@ho st/x": (DatabaseUnavailable, " ho st:5432 "),
    f"postgresql://u@{'a' * 300}/x": (ConfigurationError, "host"),
    "postgresql://u@/x?host=/nowhere&host=/elsewhere": (ConfigurationError, "host"),
    "postgresql://u@/x%00y?host=/nowhere": (SiteatlasError, ""),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_the_reason_of_a_refusal_is_reported(place: Place, name: str) -> None:
    refusal = REFUSALS[name]
    with pytest.raises(refusal.kind) as raised:
        await opening(place.url(**refusal.parts))
    assert refusal.words in raised.value.message
    assert raised.value.exit_code in {2, 4}
    assert "p@ss" not in raised.value.message


@pytest.mark.full
@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_connection_as_it_was_asked_for_is_made(place: Place, name: str) -> None:
    front = ACCEPTED[name].get("front", "none")
    settings = Settings(database_url=Secret(place.url(**ACCEPTED[name])))
    async with open_storage(settings) as database, database.engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        port = driver._transport.get_extra_info("peername")[1]
        encrypted = driver._transport.get_extra_info("ssl_object") is not None
        user = await connection.scalar(select(func.current_user()))
    assert (user, port, encrypted) == ("member", place.ports[front], front != "none")


@pytest.mark.parametrize(
    ("mode", "kind"), [("prefer", DatabaseUnavailable), ("require", DatabaseTlsFailed)]
)
async def test_a_server_that_is_not_postgresql_is_not_taken_for_one(
    mode: str, kind: type[SiteatlasError]
) -> None:
    async def greet(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with RawServer(greet) as server:
        url = f"postgresql://u:p@127.0.0.1:{server.port}/d?sslmode={mode}"
        with pytest.raises(kind) as raised:
            await opening(url)
    assert type(raised.value) is kind
    assert "not a PostgreSQL server" in raised.value.message


@pytest.mark.parametrize("url", ADDRESSES)
async def test_an_address_that_cannot_work_is_explained(url: str) -> None:
    kind, words = ADDRESSES[url]
    with pytest.raises(kind) as raised:
        await opening(url)
    assert words in raised.value.message
    assert raised.value.exit_code in {2, 4}


@pytest.mark.parametrize(
    ("revisions", "kind", "words"),
    [
        (["0001"], SchemaOutdated, "siteatlas db upgrade"),
        (["9999"], SchemaNewer, " 9999"),
        (["0001", "9999"], DatabaseError, "(0001, 9999)"),
    ],
)
async def test_another_schema_is_named_by_its_revision(
    place: Place, revisions: list[str], kind: type[SiteatlasError], words: str
) -> None:
    values = ", ".join(f"('{revision}')" for revision in revisions)
    await place.server.run(
        "CREATE TABLE alembic_version (version_num text)",
        f"INSERT INTO alembic_version VALUES {values}",
        "GRANT SELECT ON alembic_version TO PUBLIC",
        database="empty",
    )
    try:
        with pytest.raises(kind) as raised:
            await opening(place.url(database="empty"))
    finally:
        await place.server.run("DROP TABLE alembic_version", database="empty")
    assert words in raised.value.message
    assert raised.value.exit_code == 4
