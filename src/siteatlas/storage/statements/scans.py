"""Write statements for scans: open or continue, publish, or record a failure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Update, bindparam, case, func, null, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import DatabaseBusy, JobCancelled, LeaseLost
from siteatlas.storage.models import (
    Job,
    Scan,
    ScanScope,
    ScanState,
    Sitemap,
    SitemapScan,
    SitemapScanState,
)
from siteatlas.storage.statements.change_takeover import split_moves
from siteatlas.storage.statements.known_sitemaps import INDEX
from siteatlas.storage.statements.unfinished import close_unfinished
from siteatlas.storage.tables import JOBS, SCANS

# Statements of every scan are made once: making one costs as much as running it.
_OF_JOB = select(
    JOBS.c.id,
    JOBS.c.job_id,
    bindparam("of_domain", type_=SCANS.c.domain_id.type),
    JOBS.c.created_by,
    bindparam("page_limit", type_=SCANS.c.max_pages.type),
    bindparam("scan_scope", type_=SCANS.c.scope.type),
).where(JOBS.c.id == bindparam("of_job"))
OPEN_NEW = (
    insert(SCANS)
    .from_select(["job_id", "job_uuid", "domain_id", "created_by", "max_pages", "scope"], _OF_JOB)
    .on_conflict_do_nothing(index_elements=[SCANS.c.job_id])
    .returning(SCANS.c.id)
)
PUBLISH = (
    update(SCANS)
    .where(SCANS.c.id == bindparam("of_scan"))
    .values(
        state=ScanState.PUBLISHED,
        scope=bindparam("its_scope", type_=SCANS.c.scope.type),
        partial=bindparam("is_partial", type_=SCANS.c.partial.type),
        reasons=bindparam("why", type_=SCANS.c.reasons.type),
        sitemap_count=bindparam("read_sitemaps"),
        read_url_count=bindparam("read_urls"),
        url_count=bindparam("urls"),
        distinct_url_count=bindparam("distinct_urls"),
        change_counts=bindparam("changes", type_=SCANS.c.change_counts.type),
        removal_decision=null(),
    )
    .returning(SCANS.c.domain_id)
)


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Documents and URLs of a site, or of a scan, counted from rows."""

    sitemaps: int
    urls: int
    distinct_urls: int


async def open_scan(
    session: AsyncSession,
    *,
    job_id: int,
    domain_id: UUID,
    max_pages: int | None,
    scope: ScanScope = ScanScope.FULL,
) -> tuple[int, bool]:
    """The scan of a job and whether an earlier attempt left work to continue.

    One that had ended (its job was retried) starts over. Whether the job is still ours is for the
    caller to ask, at the end of the transaction: a lock on the job would stop its heartbeat.
    """
    values = {
        "of_job": job_id,
        "of_domain": domain_id,
        "page_limit": max_pages,
        "scan_scope": scope,
    }
    scan_id = (await session.execute(OPEN_NEW, values)).scalar()
    return (scan_id, False) if scan_id is not None else await continue_scan(session, job_id, scope)


async def continue_scan(
    session: AsyncSession, job_id: int, scope: ScanScope = ScanScope.FULL
) -> tuple[int, bool]:
    """The scan that an earlier attempt opened, and whether that left work to continue."""
    statement = select(Scan.id, Scan.state, Scan.scope).where(Scan.job_id == job_id)
    scan = (await session.execute(statement)).one_or_none()
    if scan is None:
        raise LeaseLost  # the job is gone
    if scan.state == ScanState.RUNNING:
        if scan.scope != scope:
            await _change_scope(session, scan.id, scan.scope, scope)
        return scan.id, True
    await _start_over(session, scan.id, scope)
    return scan.id, False


async def _change_scope(
    session: AsyncSession, scan_id: int, before: ScanScope, scope: ScanScope
) -> None:
    """Continue a scan with another scope, since its job was extended.

    Nothing is known of the children that a filter left out, so the indexes are read again.
    """
    await session.execute(update(Scan).where(Scan.id == scan_id).values(scope=scope))
    if before == ScanScope.FILTERED:
        is_index = (Sitemap.id == SitemapScan.sitemap_id) & (Sitemap.type == INDEX)
        index = select(Sitemap.id).where(is_index).exists()
        await session.execute(_reset_documents(scan_id).where(index))


async def _start_over(session: AsyncSession, scan_id: int, scope: ScanScope) -> None:
    """Reset an existing scan and its `sitemap_scans` rows, to read the site from the beginning.

    Its changes stay, but what has moved may move again.
    """
    restarted = await session.execute(
        update(Scan)
        .where(Scan.id == scan_id)
        .values(
            state=ScanState.RUNNING,
            scope=scope,
            partial=False,
            reasons=[],
            error_code=None,
            removal_decision=None,
            started_at=func.now(),
            finished_at=None,
        )
        .returning(Scan.id)
        .execution_options(synchronize_session=False)
    )
    if restarted.scalar() is None:
        raise DatabaseBusy  # retention removed it meanwhile; the next try opens a new one
    await session.execute(_reset_documents(scan_id))
    while await split_moves(session, scan_id):
        pass


def _reset_documents(scan_id: int) -> Update:
    """The statement that puts documents of a scan back on its frontier."""
    return (
        update(SitemapScan)
        .where(SitemapScan.scan_id == scan_id)
        .values(state=SitemapScanState.PENDING, error_code=None, http_status=None)
        .execution_options(synchronize_session=False)
    )


async def end_scan(
    session: AsyncSession, job_id: int, state: ScanState, error_code: str | None
) -> None:
    """Record that the running scan of a job ended without being published; close its rows."""
    document = select(Job.job_metadata["document"].astext).where(Job.id == job_id)
    single = document.scalar_subquery().is_not(None)
    ended = await session.execute(
        update(Scan)
        .where(Scan.job_id == job_id, Scan.state == ScanState.RUNNING)
        .values(
            state=state,
            scope=case((single, ScanScope.DOCUMENT.value), else_=Scan.scope),
            error_code=error_code,
            finished_at=func.now(),
        )
        .returning(Scan.id)
        .execution_options(synchronize_session=False)
    )
    scan_id = ended.scalar()
    if scan_id is not None:
        await close_unfinished(session, scan_id, error_code or JobCancelled.code)


async def scanned_domain(session: AsyncSession, job_id: int) -> UUID | None:
    """The site that a job has begun to scan."""
    return await session.scalar(select(Scan.domain_id).where(Scan.job_id == job_id))
