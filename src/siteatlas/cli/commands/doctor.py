"""`siteatlas doctor`: checks that each say whether something is right, and what to do if not."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.access.keys import ADMIN_KEY_NAME, Installation, lacks_admin_key
from siteatlas.catalog.access import last_backup_at
from siteatlas.cli.hosting.connections import (
    CREATE_ADMIN_KEY,
    CREATE_KEY,
    NO_ADMIN_KEY,
    is_loopback,
    listen,
    local_url,
)
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import advice_for, run
from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import print_message, write_json, write_line
from siteatlas.cli.terminal.tables import relative_time
from siteatlas.errors import (
    AddressError,
    ConfigurationError,
    DatabaseError,
    DnsError,
    DnsNameUnknown,
    EgressDenied,
    PortTaken,
    ProxyFailed,
    SchemaNewer,
    SchemaOutdated,
    SiteatlasError,
    TlsError,
    TlsNotSpoken,
)
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import DnsResolver, configured_proxy
from siteatlas.queue.metrics import count_waiting
from siteatlas.queue.views import list_workers
from siteatlas.settings import Settings
from siteatlas.storage.schema import check_revision
from siteatlas.storage.session import Database, database_time, get_session
from siteatlas.storage.startup import (
    RolePrivileges,
    ServerSetup,
    TakenId,
    find_taken_ids,
    free_disk_bytes,
    is_pooled,
    open_storage,
    role_privileges,
    server_setup,
)

GIGABYTE = 10**9
FREE_WARN, FREE_FAIL = 5 * GIGABYTE, GIGABYTE // 2
HEALTH_SECONDS = 3.0
UNIT_STEP = 1000
LOCAL_ACCESS = {
    True: "requests need a key",
    False: "users of this machine need no key",
    None: "whether requests need a key is not known",
}


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the setup, and what to do about it."""

    check: str
    state: State
    message: str
    advice: str | None = None


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, State.OK, message)


def warn(check: str, message: str, advice: str) -> Finding:
    """It works, but something may go wrong."""
    return Finding(check, State.WARN, message, advice)


def fail(check: str, message: str, advice: str | None = None) -> Finding:
    """It does not work."""
    return Finding(check, State.FAIL, message, advice)


def size_in_words(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if number < UNIT_STEP:
            return f"{number:.3g} {unit}"
        number /= UNIT_STEP
    return f"{number:.3g} GB"


def check_disk(settings: Settings) -> Finding:
    """The free space of the embedded database."""
    free = free_disk_bytes(settings)
    if free is None:
        return ok("disk", "The database has its own server; watch the disk there.")
    message = f"{size_in_words(free)} free for {settings.data_dir}."
    if free < FREE_FAIL:
        return fail("disk", message, "Free some space: PostgreSQL stops when the disk is full.")
    if free < FREE_WARN:
        return warn("disk", message, "Free some space, or move SITEATLAS_DATA_DIR.")
    return ok("disk", message)


def check_access(settings: Settings, *, is_closed: bool | None) -> Finding:
    """Who can use the service; `is_closed` is None if the database does not say."""
    file = settings.admin_key_file
    if file is not None and not _is_readable(file):
        return fail("access", f"{ADMIN_KEY_NAME}: {file} cannot be read.", "Check its permissions.")
    if is_loopback(settings.host):
        return ok("access", f"Listens on {settings.host}; {LOCAL_ACCESS[is_closed]}.")
    if is_closed is False and file is None:
        message = f"{settings.host} can be reached from other machines, but there is no key."
        return fail("access", message, f"Create one: {CREATE_KEY}")
    if not settings.public_url.startswith("https:"):
        message = f"{settings.host} can be reached from other machines without TLS."
        advice = "Put a reverse proxy with TLS in front and set SITEATLAS_PUBLIC_URL to its https"
        return warn("access", message, f"{advice} address.")
    return ok("access", f"Listens on {settings.host}; browsers use {settings.public_url}.")


def _is_readable(file: Path) -> bool:
    try:
        with file.open("rb"):
            return True
    except OSError:
        return False


def check_port(settings: Settings) -> Finding:
    """Whether the port is free or used by Siteatlas."""
    where = f"{settings.host}:{settings.port}"
    try:
        with listen(settings.host, settings.port):
            return ok("port", f"{where} is free.")
    except PortTaken:
        if _answers_as_siteatlas(settings):
            return ok("port", f"Siteatlas answers on {where}.")
        return fail(
            "port", f"{where} is used by another program.", "Choose another SITEATLAS_PORT."
        )
    except SiteatlasError as error:
        return fail("port", error.message, "Correct SITEATLAS_HOST and SITEATLAS_PORT.")


def _answers_as_siteatlas(settings: Settings) -> bool:
    """Whether the health check of a running service answers; HTTP_PROXY is ignored."""
    url = f"{local_url(settings.host, settings.port)}/health"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=HEALTH_SECONDS) as answer:
            return b'"status"' in answer.read(1000)
    except (OSError, HTTPException, ValueError):
        return False


async def check_network(settings: Settings, site: str) -> list[Finding]:
    """Whether a site can be resolved and requested, within the egress policy."""
    try:
        address = parse_site(site)
    except AddressError as error:
        return [fail("site", error.message, "Name another site with --site.")]
    proxy = configured_proxy(settings)
    request = _check("egress", address, _request(settings, address))
    if proxy is not None:
        return [ok("dns", "The proxy resolves names."), await request]
    return [await _check("dns", address, _resolve(settings, address.host)), await request]


async def _check(check: str, address: WebAddress, work: Awaitable[str]) -> Finding:
    try:
        return ok(check, await work)
    except SiteatlasError as error:
        return fail(check, error.message, _network_advice(error, address))


def _network_advice(error: SiteatlasError, address: WebAddress) -> str:
    match error:
        case EgressDenied():
            return f"If this is your own site, set SITEATLAS_EGRESS_ALLOW={address.host_port}"
        case TlsNotSpoken():
            return f"Request the site without TLS: --site http://{address.host_port}"
        case TlsError():
            return "Check the certificate of the site, or try another site with --site."
        case DnsNameUnknown():
            return "Check the name, or try another site with --site."
        case DnsError():
            return "Check the name servers, or set SITEATLAS_DNS_SERVERS."
        case ProxyFailed():
            return "Check SITEATLAS_PROXY and the proxy."
    return "Check the firewall, or set SITEATLAS_PROXY. Try another site with --site."


async def _resolve(settings: Settings, host: str) -> str:
    addresses = await DnsResolver(settings.name_servers).addresses(host)
    return f"{host} is {', '.join(addresses[:3])}."


async def _request(settings: Settings, address: WebAddress) -> str:
    policy = EgressPolicy.from_text(settings.egress_allow)
    client = HttpClient(
        policy,
        Politeness(),
        user_agent=settings.user_agent,
        resolver=DnsResolver(settings.name_servers),
        proxy=configured_proxy(settings),
    )
    target = parse_site(f"{address.origin}/robots.txt")
    policy.check(target)
    async with client, client.get(target) as response:
        return f"{address.host} answers with HTTP status {response.status}."


OLDEST_VERSION = 150_000
SLOW_SECONDS = 0.1
CLOCK_SECONDS = 5.0


async def check_database(
    settings: Settings, database: Database
) -> tuple[list[Finding], bool | None]:
    """The findings, and whether the installation is closed; None if that cannot be read."""
    setup = await server_setup(database)
    schema = _check_schema(setup)
    findings = [_check_server(setup), schema, _check_clock(setup)]
    if schema.state is State.FAIL:
        return findings, None
    role = await role_privileges(database)
    findings.append(_check_privileges(role))
    if role.is_owner:  # Others may not read the sequences.
        findings += [_taken_id(one) for one in await find_taken_ids(database)]
    if settings.database_url is not None:
        findings.append(_check_pooler(setup, is_pooled=await is_pooled(database)))
    findings += [await _check_workers(), await _check_backup()]
    findings += await _check_admin_key(settings)
    return findings, await Installation().is_closed()


def _check_server(setup: ServerSetup) -> Finding:
    message = (
        f"PostgreSQL {setup.version}, {size_in_words(setup.database_bytes)}, answers in "
        f"{setup.latency_seconds * 1000:.1f} ms."
    )
    if setup.version_number < OLDEST_VERSION:
        return fail("database", message, "Siteatlas needs PostgreSQL 15 or later.")
    if setup.is_read_only:
        return fail("database", f"{message} It is read-only.", "Use the primary server.")
    if setup.latency_seconds > SLOW_SECONDS:
        advice = "A scan needs several round trips per document: run workers near the database."
        return warn("database", message, advice)
    return ok("database", message)


def _check_schema(setup: ServerSetup) -> Finding:
    try:
        check_revision(setup.revision)
    except SchemaOutdated as error:
        return fail("schema", error.message, "Run: siteatlas db upgrade")
    except SchemaNewer as error:
        return fail("schema", error.message, "Install the newer version of Siteatlas.")
    return ok("schema", f"Revision {setup.revision}.")


def _check_clock(setup: ServerSetup) -> Finding:
    ahead = setup.clock_ahead_seconds
    message = f"The clock of the database differs from this machine's by {abs(ahead):.1f} s."
    if abs(ahead) > CLOCK_SECONDS:
        advice = (
            "Synchronize both: schedules, leases and webhook timestamps follow the clock of the "
            "database, dates in logs and checks of certificates that of this machine."
        )
        return warn("clock", message, advice)
    return ok("clock", message)


def _check_privileges(privileges: RolePrivileges) -> Finding:
    if not privileges.can_write:
        message = f"The role {privileges.role} cannot write to the tables."
        return fail("privileges", message, "Make it the owner of the database or schema.")
    if not privileges.is_owner:
        message = f"The role {privileges.role} can write to the tables but does not own them."
        return warn("privileges", message, "Run siteatlas db upgrade with the role that owns them.")
    return ok("privileges", f"The role {privileges.role} owns the tables.")


def _taken_id(one: TakenId) -> Finding:
    return fail(
        "ids",
        f"New rows of {one.table} get ids that are taken, up to {one.greatest}, and are refused.",
        f"Run in psql: ALTER TABLE {one.table} ALTER COLUMN {one.column} "
        f"RESTART WITH {one.greatest + 1};",
    )


def _check_pooler(setup: ServerSetup, *, is_pooled: bool) -> Finding:
    if is_pooled:
        return ok(
            "pooler",
            "Through a pooler in transaction mode; run siteatlas db upgrade directly.",
        )
    return ok("pooler", f"Direct; the server allows {setup.max_connections} connections.")


async def _check_workers() -> Finding:
    async with get_session() as session, session.begin():
        alive = [worker for worker in await list_workers(session) if worker.alive]
        waiting = await count_waiting(session)
    message = f"Processes running jobs: {len(alive)}; pending jobs: {waiting}."
    if waiting and not alive:
        return warn("workers", message, "Start siteatlas serve or siteatlas worker.")
    return ok("workers", message)


async def _check_backup() -> Finding:
    async with get_session() as session, session.begin():
        ended, now = await last_backup_at(session), await database_time(session)
    if ended is None:
        return ok("backup", "siteatlas db backup has not been used.")
    message = f"The last backup ended {relative_time(ended, now)}."
    if now - ended > timedelta(days=8):
        return warn("backup", message, "Look at the log of what runs siteatlas db backup.")
    return ok("backup", message)


async def _check_admin_key(settings: Settings) -> list[Finding]:
    async with get_session() as session, session.begin():
        lacks_admin = await lacks_admin_key(session, settings.admin_key_file)
    return [warn("keys", NO_ADMIN_KEY, CREATE_ADMIN_KEY)] if lacks_admin else []


app = typer.Typer(rich_markup_mode=None)


@app.command()
def doctor(
    site: Annotated[
        str,
        typer.Option(
            metavar="SITE",
            help="Site to resolve and to request, over HTTPS unless it is given as http://SITE.",
        ),
    ] = "example.com",
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not check name resolution and outgoing requests.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the setup: database, schema, privileges, network, disk, clocks, ports.

    Each line shows ok, warn or fail, with advice if needed. Exit with 1 if a check fails.
    """
    findings = run(_examine(prepare(), None if offline else site))
    worst = max((finding.state for finding in findings), key=list(State).index)
    if as_json:
        write_json({"status": worst, "items": findings})
    else:
        _print_findings(findings)
    raise typer.Exit(1 if worst is State.FAIL else 0)


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        write_line(f"{finding.state:<4}  {finding.check:<10}  {finding.message}")
        if finding.advice:
            write_line(f"{'':18}{finding.advice}")


async def _examine(settings: Settings, site: str | None) -> list[Finding]:
    """Run all checks for `siteatlas doctor`; one that fails does not prevent the others."""
    findings, is_closed = await _examine_database(settings)
    findings.append(check_disk(settings))
    findings.append(check_access(settings, is_closed=is_closed))
    findings.append(await asyncio.to_thread(check_port, settings))
    if site is not None:
        findings += await check_network(settings, site)
    return findings


async def _examine_database(settings: Settings) -> tuple[list[Finding], bool | None]:
    """The findings about the database; one if it cannot be used."""
    try:
        async with open_storage(settings, announce=print_message, check_schema=False) as database:
            return await check_database(settings, database)
    except (DatabaseError, ConfigurationError) as error:
        return [fail("database", error.message, advice_for(error))], None
