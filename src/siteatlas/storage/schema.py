"""The schema: its tables, the version in the database, the one that is needed, the upgrade."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, DateTime, Table, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from siteatlas.errors import DatabaseError, SchemaNewer, SchemaOutdated
from siteatlas.storage.engine import translated_faults
from siteatlas.storage.models import (
    AddressSlot,
    Base,
    Domain,
    DomainProblem,
    FeedEvent,
    FeedHead,
    Job,
    JobAttempt,
    JobRequest,
    RobotsFile,
    Scan,
    SiteHeaders,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
    StoredFinding,
    UrlChange,
    WebhookDelivery,
    WebhookEndpoint,
    Worker,
)

UPGRADE_LOCK = 0x5173A71A5


def table_of(model: type[Base]) -> Table:
    """The table of a model."""
    return Base.metadata.tables[model.__tablename__]


ADDRESS_SLOTS = table_of(AddressSlot)
DOMAINS = table_of(Domain)
DOMAIN_PROBLEMS = table_of(DomainProblem)
FEED_EVENTS = table_of(FeedEvent)
FEED_HEAD = table_of(FeedHead)
FINDINGS = table_of(StoredFinding)
JOBS = table_of(Job)
JOB_ATTEMPTS = table_of(JobAttempt)
JOB_REQUESTS = table_of(JobRequest)
ROBOTS_FILES = table_of(RobotsFile)
SCANS = table_of(Scan)
SITE_HEADERS = table_of(SiteHeaders)
SITEMAPS = table_of(Sitemap)
SITEMAP_LINKS = table_of(SitemapLink)
SITEMAP_SCANS = table_of(SitemapScan)
SITEMAP_URLS = table_of(SitemapUrl)
URL_CHANGES = table_of(UrlChange)
WEBHOOK_DELIVERIES = table_of(WebhookDelivery)
WEBHOOK_ENDPOINTS = table_of(WebhookEndpoint)


async def upgrade_schema(engine: AsyncEngine, revision: str | None = None) -> None:
    """Upgrade the database to the revision that this code needs; tests pass an earlier one."""
    with translated_faults():
        async with engine.begin() as connection:
            await connection.run_sync(migrate, revision or needed_revision())


async def downgrade_schema(engine: AsyncEngine) -> None:
    """Drop all tables; used by tests of the migrations."""
    with translated_faults():
        async with engine.begin() as connection:
            await connection.run_sync(migrate, "base")


def migrate(connection: Connection, revision: str) -> None:
    """Run all steps in one transaction, behind a lock: several processes may start at once.

    It may take its time; the limits of requests, which stand on a direct connection, do not hold.
    """
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    connection.execute(select(*(func.set_config(name, "0", True) for name in limits)))
    connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
    check_known(read_revision(connection))
    config = _config()
    config.attributes["connection"] = connection
    # The revision before the first one: no tables.
    if revision == "base":
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


async def make_older(session: AsyncSession, by: timedelta) -> None:
    """Move all that was recorded into the past, as if so much time had gone by since.

    What sites say about their own dates stays, and so do the leases of processes that run. For the
    demo: scans with time between them need no other clock than that of the database.
    """
    for table in Base.metadata.sorted_tables:
        if table not in {table_of(Worker), ADDRESS_SLOTS}:
            moments = [c for c in table.c if isinstance(c.type, DateTime) and c.name != "lastmod"]
            if moments:
                await session.execute(update(table).values({c: c - by for c in moments}))


async def require_schema(engine: AsyncEngine) -> None:
    """Raise SchemaNewer or SchemaOutdated unless the database is at the needed revision."""
    check_revision(await current_revision(engine))


def check_revision(current: str | None) -> None:
    """Raise SchemaNewer or SchemaOutdated unless this is exactly the needed revision."""
    needed = needed_revision()
    if current == needed:
        return
    check_known(current)
    state = "has no schema yet" if current is None else f"schema is at {current}"
    raise SchemaOutdated(
        f"The database {state}, this version needs {needed}. Run: siteatlas db upgrade"
    )


def check_known(current: str | None) -> None:
    """Raise SchemaNewer for a revision that this version has no migration for."""
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaNewer(
            f"The database schema is at {current}, which this version of Siteatlas does not know: "
            "the database belongs to a newer one. Use that, or another database."
        )


async def current_revision(engine: AsyncEngine) -> str | None:
    """The revision that the database has; None when it has no schema of ours."""
    with translated_faults():
        async with engine.connect() as connection:
            return await connection.run_sync(read_revision)


def read_revision(connection: Connection) -> str | None:
    """The schema revision in `alembic_version`; DatabaseError if there are several."""
    heads = MigrationContext.configure(connection).get_current_heads()
    if len(heads) > 1:
        raise DatabaseError(
            f"The table alembic_version names several revisions ({', '.join(sorted(heads))}), but "
            "a database of Siteatlas has one. Restore it from a backup."
        )
    return heads[0] if heads else None


@cache
def needed_revision() -> str:
    """The revision that this version of the code works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _config() -> Config:
    config = Config()
    migrations = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
