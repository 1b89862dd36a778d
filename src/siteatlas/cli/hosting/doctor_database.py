"""The checks of `siteatlas doctor` that need the database."""

from __future__ import annotations

from siteatlas.access.installation import Installation
from siteatlas.access.keys import lacks_admin_key
from siteatlas.cli.hosting.doctor import Finding, State, fail, ok, size_in_words, warn
from siteatlas.cli.hosting.listener import CREATE_ADMIN_KEY, NO_ADMIN_KEY
from siteatlas.errors import SchemaNewer, SchemaOutdated
from siteatlas.insights.queue_load import count_waiting
from siteatlas.insights.setup import (
    RolePrivileges,
    ServerSetup,
    is_pooled,
    role_privileges,
    server_setup,
)
from siteatlas.insights.workers import list_workers
from siteatlas.settings import Settings
from siteatlas.storage.schema import check_revision
from siteatlas.storage.session import Database, get_session

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
    findings.append(_check_privileges(await role_privileges(database)))
    if settings.database_url is not None:
        findings.append(_check_pooler(setup, is_pooled=await is_pooled(database)))
    findings.append(await _check_workers())
    findings += await _check_admin_key(settings)
    return findings, await Installation().is_closed()


def _check_server(setup: ServerSetup) -> Finding:
    """Version, speed and size of the database."""
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
    """Whether the schema fits this version."""
    try:
        check_revision(setup.revision)
    except SchemaOutdated as error:
        return fail("schema", error.message, "Run: siteatlas db upgrade")
    except SchemaNewer as error:
        return fail("schema", error.message, "Install the newer version of Siteatlas.")
    return ok("schema", f"Revision {setup.revision}.")


def _check_clock(setup: ServerSetup) -> Finding:
    """Whether the clocks of this machine and of the database agree."""
    ahead = setup.clock_ahead_seconds
    message = f"The clock of the database differs from this machine's by {abs(ahead):.1f} s."
    if abs(ahead) > CLOCK_SECONDS:
        return warn(
            "clock", message, "Synchronize the clocks: dates in logs and pages will differ."
        )
    return ok("clock", message)


def _check_privileges(privileges: RolePrivileges) -> Finding:
    """Whether the role may write, and whether it may upgrade the schema."""
    if not privileges.can_write:
        message = f"The role {privileges.role} cannot write to the tables."
        return fail("privileges", message, "Make it the owner of the database or schema.")
    if not privileges.is_owner:
        message = f"The role {privileges.role} can write to the tables but does not own them."
        return warn("privileges", message, "Run siteatlas db upgrade with the role that owns them.")
    return ok("privileges", f"The role {privileges.role} owns the tables.")


def _check_pooler(setup: ServerSetup, *, is_pooled: bool) -> Finding:
    """How the server is reached."""
    if is_pooled:
        return ok(
            "pooler",
            "Through a pooler in transaction mode; run siteatlas db upgrade directly.",
        )
    return ok("pooler", f"Direct; the server allows {setup.max_connections} connections.")


async def _check_workers() -> Finding:
    """Whether anybody runs jobs."""
    async with get_session() as session, session.begin():
        alive = [worker for worker in await list_workers(session) if worker.alive]
        waiting = await count_waiting(session)
    message = f"Processes running jobs: {len(alive)}; pending jobs: {waiting}."
    if waiting and not alive:
        return warn("workers", message, "Start siteatlas serve or siteatlas worker.")
    return ok("workers", message)


async def _check_admin_key(settings: Settings) -> list[Finding]:
    """A warning if keys are needed but none of them can manage keys."""
    async with get_session() as session, session.begin():
        lacks_admin = await lacks_admin_key(session, settings.admin_key_file)
    return [warn("keys", NO_ADMIN_KEY, CREATE_ADMIN_KEY)] if lacks_admin else []
