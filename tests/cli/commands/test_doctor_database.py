"""The checks of `siteatlas doctor`: what is right, what is wrong, and what to do about it."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from siteatlas.access.audit import record_command
from siteatlas.access.keys import KeyRequest, Scope, create_key, revoke
from siteatlas.cli.commands import doctor
from siteatlas.cli.commands.doctor import (
    Finding,
    State,
    check_access,
    check_database,
    check_disk,
    check_network,
    check_port,
)
from siteatlas.cli.hosting.connections import CREATE_KEY, NO_ADMIN_KEY
from siteatlas.errors import (
    DnsError,
    DnsNameUnknown,
    ProxyFailed,
    SiteatlasError,
    Timeout,
    TlsError,
)
from siteatlas.net.address import parse_site
from siteatlas.settings import Secret, Settings
from siteatlas.storage.models import BACKED_UP
from siteatlas.storage.schema import upgrade_schema
from siteatlas.storage.session import Database, bind_database, create_database
from tests.fixtures.database import PREFIX, PostgresServer, transaction
from tests.fixtures.first_schema import FIRST
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pooler import running_pooler
from tests.fixtures.queue import submit
from tests.fixtures.site_server import SiteServer

HEALTHY = {"/health": '{"status": "ok"}'}
OWN_SERVER = Settings(database_url=Secret("postgresql://db.example/siteatlas"))


async def findings_of(database: Database, settings: Settings = OWN_SERVER) -> dict[str, Finding]:
    findings, _ = await check_database(settings, database)
    return {finding.check: finding for finding in findings}


async def test_a_database_that_is_set_up_well_has_nothing_to_do(database: Database):
    found = await findings_of(database)
    assert list(found) == [
        "database",
        "schema",
        "clock",
        "privileges",
        "pooler",
        "workers",
        "backup",
    ]
    assert {finding.state for finding in found.values()} == {State.OK}
    assert found["database"].message.startswith("PostgreSQL ")


async def test_jobs_without_a_worker_are_noticed(database: Database):
    await submit("waiting.example")
    workers = (await findings_of(database))["workers"]
    assert workers.state is State.WARN
    assert "siteatlas worker" in str(workers.advice)


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [(None, State.OK, "has not been used"), (1, State.OK, "1 d ago"), (9, State.WARN, "9 d ago")],
)
async def test_a_backup_that_is_old_is_noticed(
    database: Database, days: int | None, state: State, words: str
):
    if days is not None:
        async with transaction() as session:
            await record_command(session, BACKED_UP, "nightly.backup")
        await let_minutes_pass(days * 1440 + 1)
    backup = (await findings_of(database))["backup"]
    assert (backup.state, words in backup.message) == (state, True)


async def test_the_first_key_closes_the_installation(database: Database):
    assert (await check_database(OWN_SERVER, database))[1] is False
    async with transaction() as session:
        await create_key(session, KeyRequest("ann", frozenset({Scope.READ})))
    assert (await check_database(OWN_SERVER, database))[1] is True


async def test_keys_without_the_scope_admin_are_noticed(database: Database, tmp_path: Path):
    async with transaction() as session:
        await create_key(session, KeyRequest("ann", frozenset({Scope.READ})))
    keys = (await findings_of(database))["keys"]
    assert (keys.state, keys.message) == (State.WARN, NO_ADMIN_KEY)
    assert CREATE_KEY in str(keys.advice)
    with_file = replace(OWN_SERVER, admin_key_file=tmp_path / "key")
    assert "keys" not in await findings_of(database, with_file)
    async with transaction() as session:
        admin = await create_key(session, KeyRequest("root", frozenset({Scope.ADMIN})))
    assert "keys" not in await findings_of(database)
    async with transaction() as session:
        await revoke(session, admin.id)
    assert "keys" in await findings_of(database)


async def test_an_old_schema_is_named_with_the_command(postgres_server: PostgresServer):
    name = f"{PREFIX}_doctor"
    await postgres_server.run(f"CREATE DATABASE {name}")
    old = postgres_server.open(name)
    try:
        await upgrade_schema(old.engine, FIRST)
        schema = (await findings_of(old))["schema"]
    finally:
        await old.close()
        await postgres_server.drop(name)
    assert (schema.state, schema.advice) == (State.FAIL, "Run: siteatlas db upgrade")


@pytest.mark.pgbouncer
@pytest.mark.slow
async def test_a_pooler_is_recognized(
    pgbouncer_program: str, postgres_server: PostgresServer, database_name: str
):
    with running_pooler(pgbouncer_program, postgres_server.admin_url) as pooler:
        pooled = create_database(pooler.url_of(database_name))
        bind_database(pooled)
        try:
            found = await findings_of(pooled)
        finally:
            bind_database(None)
            await pooled.close()
    assert "transaction mode" in found["pooler"].message


def test_an_address_that_others_can_reach_needs_a_key_and_tls(tmp_path: Path):
    public = Settings(host="0.0.0.0")
    assert check_access(Settings(), is_closed=False).state is State.OK
    without_key = check_access(public, is_closed=False)
    assert without_key.state is State.FAIL
    assert "siteatlas keys create" in str(without_key.advice)
    without_tls = check_access(public, is_closed=True)
    assert without_tls.state is State.WARN
    assert "SITEATLAS_PUBLIC_URL" in str(without_tls.advice)
    behind_proxy = replace(public, public_url="https://siteatlas.example.com")
    assert check_access(behind_proxy, is_closed=True).state is State.OK
    no_file = replace(public, admin_key_file=tmp_path / "nothing")
    assert check_access(no_file, is_closed=True).state is State.FAIL


def test_a_port_of_another_program_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = Settings(port=other.getsockname()[1])
        assert check_port(settings).state is State.FAIL
    assert check_port(settings).state is State.OK


def has_ipv6() -> bool:
    """Whether this machine can listen on the loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def check_port_of_service(listens_on: str, host: str) -> Finding:
    """Check the port of something that answers like Siteatlas."""
    site = SiteServer(HEALTHY)
    site.listens_on = listens_on
    async with site:
        return await asyncio.to_thread(check_port, Settings(host=host, port=site.port))


async def test_a_running_service_is_found_in_spite_of_http_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it would know the earlier environment
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        found = await check_port_of_service("127.0.0.1", "127.0.0.1")
    assert "Siteatlas answers" in found.message


@pytest.mark.parametrize(
    ("listens_on", "host"),
    [("0.0.0.0", "0.0.0.0"), ("0.0.0.0", "*"), ("::1", "::1"), ("::1", "[::1]")],
)
async def test_a_running_service_is_found_at_the_address_it_listens_on(listens_on: str, host: str):
    if ":" in listens_on and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    assert (await check_port_of_service(listens_on, host)).state is State.OK


def test_a_full_disk_is_noticed_before_postgresql_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(data_dir=tmp_path / "not" / "there" / "yet")
    assert str(settings.data_dir) in check_disk(settings).message
    monkeypatch.setattr(doctor, "FREE_WARN", 10**18)
    assert check_disk(settings).state is State.WARN
    monkeypatch.setattr(doctor, "FREE_FAIL", 10**18)
    assert check_disk(settings).state is State.FAIL


async def test_a_site_is_requested_as_scans_do():
    async with SiteServer({"/robots.txt": ""}) as site:
        base = f"http://{site.host_port}"
        refused = await check_network(Settings(), base)
        allowed = await check_network(Settings(egress_allow=site.host_port), base)
    assert [(one.check, one.state) for one in refused] == [
        ("dns", State.OK),
        ("egress", State.FAIL),
    ]
    assert f"SITEATLAS_EGRESS_ALLOW={site.host_port}" in str(refused[1].advice)
    assert [one.state for one in allowed] == [State.OK, State.OK]
    assert "HTTP status 200" in allowed[1].message


@pytest.mark.parametrize("site", ["", "not a site", "ftp://example.com", "http://[::1"])
async def test_an_invalid_site_is_one_failed_check(site: str):
    (found,) = await check_network(Settings(), site)
    assert (found.check, found.state) == ("site", State.FAIL)
    assert "--site" in str(found.advice)


async def test_a_site_without_tls_is_to_be_requested_without_it():
    async with SiteServer({"/robots.txt": ""}) as site:
        found = await check_network(Settings(egress_allow=site.host_port), site.host_port)
        assert found[1].state is State.FAIL
        assert f"--site http://{site.host_port}" in str(found[1].advice)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (DnsNameUnknown(), "Check the name"),
        (DnsError(), "SITEATLAS_DNS_SERVERS"),
        (TlsError(), "certificate"),
        (ProxyFailed(), "SITEATLAS_PROXY"),
        (Timeout(), "firewall"),
    ],
)
def test_each_fault_of_the_network_has_its_own_advice(error: SiteatlasError, advice: str):
    given = doctor._network_advice(error, parse_site("example.com"))
    assert advice in given


def test_a_name_that_does_not_exist_is_not_blamed_on_the_name_servers():
    given = doctor._network_advice(DnsNameUnknown(), parse_site("nosuch.example"))
    assert "name servers" not in given
    assert "SITEATLAS_DNS_SERVERS" not in given
