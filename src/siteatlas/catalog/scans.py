"""Scans: opened or continued for a job, summarised, published or ended, and shown.

A scan belongs to one job and survives its attempts: an attempt that finds it running continues it.
`summarise_scan` counts from rows what was read and what the site has; `publish_scan` writes the
result and the counters of the site. The number in the change feed comes last, see `change_feed`.
Statements that every scan runs are built once: building one costs as much as running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Double,
    Update,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    delete,
    extract,
    func,
    literal,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import DEFAULT_INTERVAL_HOURS, hours_from_now
from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page
from siteatlas.catalog.sitemaps import DONE, INDEX, READ, DocumentRead, stored_url_count
from siteatlas.catalog.url_changes import leftover_scans, split_moves
from siteatlas.catalog.views import (
    SITEMAP_COUNT,
    Count,
    Example,
    Shown,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import DatabaseBusy, JobCancelled, LeaseLost, UrlLimitReached
from siteatlas.storage.models import (
    Job,
    LastScanStatus,
    Scan,
    ScanScope,
    ScanState,
    Sitemap,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
)
from siteatlas.storage.schema import (
    DOMAINS,
    JOBS,
    SCANS,
    SITEMAP_LINKS,
    SITEMAP_SCANS,
    SITEMAPS,
    URL_CHANGES,
)

NOT_ASKED = "not_asked"
TROUBLED = (SitemapScanState.UNREAD, SitemapScanState.CUT)

_job_columns = select(
    JOBS.c.id,
    JOBS.c.job_id,
    bindparam("of_domain", type_=SCANS.c.domain_id.type),
    JOBS.c.created_by,
    bindparam("page_limit", type_=SCANS.c.max_pages.type),
    bindparam("scan_scope", type_=SCANS.c.scope.type),
).where(JOBS.c.id == bindparam("of_job"))
_open_new = (
    insert(SCANS)
    .from_select(
        ["job_id", "job_uuid", "domain_id", "created_by", "max_pages", "scope"], _job_columns
    )
    .on_conflict_do_nothing(index_elements=[SCANS.c.job_id])
    .returning(SCANS.c.id)
)


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
    scan_id = (await session.execute(_open_new, values)).scalar()
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


async def scanned_domain(session: AsyncSession, job_id: int) -> UUID | None:
    """The site that a job has begun to scan."""
    return await session.scalar(select(Scan.domain_id).where(Scan.job_id == job_id))


_scan = bindparam("scan", type_=BigInteger())
_domain = bindparam("domain", type_=Uuid())
_state = SITEMAP_SCANS.c.state
_is_gone = SITEMAPS.c.gone_at.is_not(None)
_counts = (
    func.count()
    .filter(
        or_(SITEMAPS.c.status == SitemapStatus.COMPLETED, SITEMAPS.c.url_count > 0),
        SITEMAPS.c.gone_at.is_(None),
    )
    .label("sitemaps"),
    func.coalesce(func.sum(SITEMAPS.c.url_count), 0).label("urls"),
)
# The scan did not come to it, or did not find it; other faults prove nothing.
_may_have_vanished = or_(
    _state.is_(None),
    and_(
        _state == SitemapScanState.UNREAD,
        or_(
            SITEMAP_SCANS.c.http_status.in_((404, 410)),
            SITEMAP_SCANS.c.error_code == NOT_ASKED,
            SITEMAPS.c.vanished_at.is_not(None),
        ),
    ),
)


def silent_read_untold() -> Any:
    """SQL condition: the last silent read of the document is not in the feed yet."""
    its_scan = SCANS.alias("silent_scan")
    return (
        select(its_scan.c.id)
        .where(its_scan.c.id == SITEMAPS.c.baseline_scan_id, its_scan.c.published_seq.is_(None))
        .correlate(SITEMAPS)
        .exists()
    )


# All that the feed has reported, by a baseline or as added, have a scan that did.
_is_new = and_(_state.in_(READ), SITEMAPS.c.baseline_scan_id.is_(None))
_stored = (
    select(
        *_counts,
        func.coalesce(func.sum(SITEMAPS.c.missing_count), 0).label("missing"),
        func.count().filter(~_is_gone, _state.not_in(DONE)).label("incomplete"),
        func.count().filter(~_is_gone, _may_have_vanished).label("unread"),
        func.count()
        .filter(_state.in_(READ), or_(_is_gone, SITEMAPS.c.vanished_at.is_not(None)))
        .label("returned"),
        func.count().filter(_is_new).label("new"),
        func.count().filter(_state != SitemapScanState.UNCHANGED).label("reread"),
        func.count().filter(silent_read_untold()).label("silent"),
    )
    .outerjoin(
        SITEMAP_SCANS,
        (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (SITEMAP_SCANS.c.scan_id == _scan),
    )
    .where(SITEMAPS.c.domain_id == _domain)
    .subquery("stored")
)
_largest = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.type,
        SITEMAP_SCANS.c.url_count,
        func.count().over().label("documents"),
        func.sum(SITEMAP_SCANS.c.url_count).over().label("urls"),
    )
    .join(SITEMAP_SCANS, SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id)
    .where(SITEMAP_SCANS.c.scan_id == _scan, _state.in_(READ))
    .order_by(SITEMAP_SCANS.c.url_count.desc(), SITEMAPS.c.url)
    .limit(bindparam("max_rows"))
    .subquery("largest")
)
_last_distinct = (
    select(SCANS.c.distinct_url_count)
    .where(SCANS.c.domain_id == _domain, SCANS.c.published_seq.is_not(None))
    .order_by(SCANS.c.published_seq.desc())
    .limit(1)
    .scalar_subquery()
)
_summarise = (
    select(
        _stored.c.sitemaps.label("stored_sitemaps"),
        _stored.c.urls.label("stored_urls"),
        *(_stored.c[name] for name in ("missing", "incomplete", "unread")),
        *(_stored.c[name] for name in ("returned", "new", "reread", "silent")),
        DOMAINS.c.baseline_scan_id,
        DOMAINS.c.removals_held_since,
        DOMAINS.c.origin,
        DOMAINS.c.last_scan_status,
        _last_distinct.label("last_distinct"),
        select(URL_CHANGES.c.scan_id)
        .where(URL_CHANGES.c.scan_id == _scan)
        .exists()
        .label("has_changes"),
        leftover_scans(_domain, _scan).order_by(None).exists().label("has_leftovers"),
        *_largest.c,
    )
    .select_from(_stored)
    .join(DOMAINS, DOMAINS.c.id == _domain)
    .outerjoin(_largest, true())
    .order_by(_largest.c.url_count.desc(), _largest.c.url)
)


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """What a scan read, with its largest documents, and what its site has.

    Of the documents of the site, those that are not gone: `missing` is the number of their missing
    URLs, `incomplete` how many the scan requested but did not read in full, `unread` how many may
    have vanished. `returned` ones were gone or had vanished, `new` ones were never in the feed,
    `reread` ones changed or failed, `silent` ones have a baseline that is not in the feed
    yet. `last_distinct` is the number of different URLs after the last published scan.
    `has_leftovers`: unpublished scans left changes.
    """

    sitemaps: int
    urls: int
    largest: list[dict[str, Any]]
    stored_sitemaps: int
    stored_urls: int
    missing: int
    incomplete: int
    unread: int
    returned: int
    new: int
    reread: int
    silent: int
    baseline_scan_id: int | None
    removals_held_since: datetime | None
    origin: str | None
    last_status: LastScanStatus | None
    last_distinct: int | None
    has_changes: bool
    has_leftovers: bool

    @property
    def has_baseline(self) -> bool:
        """Whether the feed reports the URLs of this site."""
        return self.baseline_scan_id is not None


async def summarise_scan(
    session: AsyncSession, scan_id: int, domain_id: UUID, limit: int
) -> ScanSummary:
    """Count what is written; of the documents that were read at most `limit` are described."""
    values = {"scan": scan_id, "domain": domain_id, "max_rows": limit}
    rows = (await session.execute(_summarise, values)).all()
    first = rows[0]
    return ScanSummary(
        sitemaps=first.documents or 0,
        urls=int(first.urls or 0),
        largest=[
            {"id": str(row.id), "url": row.url, "type": row.type, "url_count": row.url_count}
            for row in rows
            if row.id is not None
        ],
        stored_sitemaps=first.stored_sitemaps,
        stored_urls=int(first.stored_urls),
        missing=int(first.missing),
        incomplete=first.incomplete,
        unread=first.unread,
        returned=first.returned,
        new=first.new,
        reread=first.reread,
        silent=first.silent,
        baseline_scan_id=first.baseline_scan_id,
        removals_held_since=first.removals_held_since,
        origin=first.origin,
        last_status=first.last_scan_status,
        last_distinct=first.last_distinct,
        has_changes=first.has_changes,
        has_leftovers=first.has_leftovers,
    )


_report_new = (
    update(SITEMAPS)
    .where(SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id, SITEMAP_SCANS.c.scan_id == _scan, _is_new)
    .values(baseline_scan_id=_scan)
    .returning(SITEMAPS.c.id)
)


async def report_new_documents(session: AsyncSession, scan_id: int) -> list[UUID]:
    """The documents that a scan has read and the feed has not reported; this scan does."""
    return list((await session.scalars(_report_new, {"scan": scan_id})).all())


# Such a read may belong to a scan that was not published; this scan reports it.
_report_silent = (
    update(SITEMAPS)
    .where(SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()), silent_read_untold())
    .values(baseline_scan_id=_scan)
    .returning(SITEMAPS.c.id)
)


async def report_silent_reads(session: AsyncSession, scan_id: int, domain_id: UUID) -> list[UUID]:
    """The documents with a silent read that is not in the feed yet; this scan reports it."""
    values = {"scan": scan_id, "of_domain": domain_id}
    return list((await session.scalars(_report_silent, values)).all())


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Documents and URLs of a site, or of a scan, counted from rows."""

    sitemaps: int
    urls: int
    distinct_urls: int


@dataclass(frozen=True, slots=True)
class Publication:
    """What a scan found, and what its site lists from now on.

    `read` is what the scan read, `stored` what the site has. `reasons` say why the scan is partial,
    if it is. `held` is the number of held removals. `is_baseline`: it is the first complete one.
    `has_new_urls`: all URLs are to be judged, since they or robots.txt changed.
    """

    scan_id: int
    scope: ScanScope
    read: ScanCounts
    stored: ScanCounts
    reasons: list[str]
    changes: dict[str, int]
    held: int = 0
    is_baseline: bool = False
    origin: str | None = None
    ip: str | None = None
    has_new_urls: bool = True

    def values(self) -> dict[str, Any]:
        """The values of the statement that publishes it."""
        return {
            "of_scan": self.scan_id,
            "its_scope": self.scope,
            "is_partial": bool(self.reasons),
            "why": self.reasons,
            "read_sitemaps": self.read.sitemaps,
            "read_urls": self.read.urls,
            "changes": self.changes,
            "judge_urls": self.has_new_urls,
            "held": self.held,
            "baseline": self.scan_id if self.is_baseline else None,
            **asdict(self.stored),
        }


@dataclass(frozen=True, slots=True)
class Rescheduling:
    """A scan requested by a user moves the next scheduled scan of its site one interval away.

    It does not if it stopped at a limit (`stopped_at`) below that of the site.
    `default_interval_hours` applies to sites without an interval of their own.
    """

    stopped_at: int | None = None
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS


_update_domain = update(DOMAINS).where(DOMAINS.c.id == bindparam("of_domain"))
_record_counts = _update_domain.values(
    sitemap_count=bindparam("sitemaps"),
    url_count=bindparam("urls"),
    distinct_url_count=bindparam("distinct_urls"),
    updated_at=func.now(),
)
_stopped_at = bindparam("stopped_at", type_=DOMAINS.c.max_pages.type)
_counts_as_scheduled = (
    DOMAINS.c.watched
    & bindparam("reschedules", type_=Boolean())
    # NULL if the site has no limit, or the scan reached none; only the latter moves the next scan.
    & func.coalesce(DOMAINS.c.max_pages <= _stopped_at, _stopped_at.is_(None))
)
_record_success = _record_counts.values(
    last_scan_at=func.now(),
    last_scan_status=bindparam("ended"),
    last_error_code=None,
    failures_in_a_row=0,
    origin=func.coalesce(bindparam("answered_at", type_=DOMAINS.c.origin.type), DOMAINS.c.origin),
    address=func.coalesce(
        bindparam("answered_from", type_=DOMAINS.c.address.type), DOMAINS.c.address
    ),
    next_scan_at=case(
        (
            _counts_as_scheduled,
            hours_from_now(
                func.coalesce(
                    DOMAINS.c.scan_interval_hours,
                    bindparam("default_interval_hours", type_=Double()),
                )
            ),
        ),
        else_=DOMAINS.c.next_scan_at,
    ),
)
_held = bindparam("held", type_=DOMAINS.c.missing_count.type)
_removals = {
    "missing_count": _held,
    "removals_held_since": case(
        (_held > 0, func.coalesce(DOMAINS.c.removals_held_since, func.now())), else_=null()
    ),
    "baseline_scan_id": func.coalesce(
        DOMAINS.c.baseline_scan_id,
        bindparam("baseline", type_=DOMAINS.c.baseline_scan_id.type),
    ),
    "judge_urls_at": case(
        (bindparam("judge_urls", type_=Boolean()), func.now()), else_=DOMAINS.c.judge_urls_at
    ),
}
_publish = (
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
# Joined, so that the row of the scan is written, and locked, before that of its site.
_of_published = DOMAINS.c.id == _publish.cte("published").c.domain_id
_publish_and_record_counts = _record_counts.where(_of_published).values(**_removals)
_publish_and_record_success = (
    _record_success.where(_of_published).values(**_removals).returning(_counts_as_scheduled)
)


async def publish_scan(
    session: AsyncSession,
    publication: Publication,
    *,
    domain_id: UUID,
    whole_site: bool = True,
    rescheduling: Rescheduling | None = None,
) -> bool:
    """Publish a scan but for its number: its site gets the new counters.

    The site also learns how the scan ended and which origin answered, if it was a scan of the
    whole site: one of a single document says nothing on that. Without `rescheduling` the time of
    its next scan stays as it is. Return whether it was moved.
    """
    values = publication.values() | {"of_domain": domain_id}
    if not whole_site:
        await session.execute(_publish_and_record_counts, values)
        return False
    status = LastScanStatus.PARTIAL if publication.reasons else LastScanStatus.COMPLETED
    values |= {
        "ended": status,
        "answered_at": publication.origin,
        "answered_from": publication.ip,
    }
    values |= asdict(rescheduling or Rescheduling()) | {"reschedules": rescheduling is not None}
    return bool(await session.scalar(_publish_and_record_success, values))


# A change of the origin is recorded with the scan that reports it.
_record_first_origin = _update_domain.where(DOMAINS.c.origin.is_(None)).values(
    origin=bindparam("answered_at")
)


async def record_first_origin(session: AsyncSession, domain_id: UUID, origin: str) -> None:
    """Record which origin responds for a site, if none is known."""
    await session.execute(_record_first_origin, {"of_domain": domain_id, "answered_at": origin})


_count_domain = select(*_counts).where(SITEMAPS.c.domain_id == bindparam("domain"))


async def count_domain(session: AsyncSession, domain_id: UUID) -> tuple[int, int]:
    """The readable documents of a site, and their URLs."""
    count, urls = (await session.execute(_count_domain, {"domain": domain_id})).one()
    return count, int(urls)


_recorded_counts = select(
    DOMAINS.c.sitemap_count, DOMAINS.c.url_count, DOMAINS.c.distinct_url_count
).where(DOMAINS.c.id == bindparam("of_domain"))


async def recorded_domain_counts(session: AsyncSession, domain_id: UUID) -> ScanCounts:
    """The counters stored in the row of a site."""
    row = (await session.execute(_recorded_counts, {"of_domain": domain_id})).one_or_none()
    return ScanCounts(*row) if row else ScanCounts(0, 0, 0)


_correct_counts = _record_counts.where(
    DOMAINS.c.sitemap_count == bindparam("old_sitemaps"),
    DOMAINS.c.url_count == bindparam("old_urls"),
    DOMAINS.c.distinct_url_count == bindparam("old_distinct_urls"),
)


async def correct_domain_counts(
    session: AsyncSession, domain_id: UUID, counts: ScanCounts, *, instead_of: ScanCounts
) -> None:
    """Update the counters of a site, unless they have been changed concurrently."""
    old = {f"old_{name}": number for name, number in asdict(instead_of).items()}
    await session.execute(_correct_counts, {"of_domain": domain_id} | asdict(counts) | old)


_record_failure = _update_domain.values(
    last_scan_at=func.now(),
    last_scan_status=LastScanStatus.FAILED,
    last_error_code=bindparam("code"),
    failures_in_a_row=DOMAINS.c.failures_in_a_row + 1,
    updated_at=func.now(),
)


async def record_domain_failure(session: AsyncSession, domain_id: UUID, error_code: str) -> None:
    """Record that the scan of a site failed permanently; its counters remain unchanged."""
    await session.execute(_record_failure, {"of_domain": domain_id, "code": error_code})


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


_is_pending = (SITEMAP_SCANS.c.scan_id == bindparam("scan")) & (
    SITEMAP_SCANS.c.state == SitemapScanState.PENDING
)
_never_asked = (SITEMAPS.c.status == SitemapStatus.PENDING) & SITEMAPS.c.type.is_(None)


def _pending_sitemap_ids() -> Any:
    return (
        select(SITEMAP_SCANS.c.sitemap_id)
        .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_SCANS.c.sitemap_id)
        .where(_is_pending)
        # What is left over by a scan of an older version, retention removes.
        .limit(20_000)
    )


_any_pending = select(select(SITEMAP_SCANS.c.scan_id).where(_is_pending).exists())
_break_off = (
    update(SITEMAP_SCANS)
    .where(_is_pending, SITEMAP_SCANS.c.http_status.is_not(None))
    .values(
        state=SitemapScanState.CUT,
        error_code=bindparam("code"),
        finished_at=func.now(),
        url_count=stored_url_count(SITEMAP_SCANS.c.sitemap_id),
    )
    .returning(SITEMAP_SCANS.c.sitemap_id)
)
_count_broken_off = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(
        status=bindparam("status"),
        error_code=bindparam("code"),
        last_read_at=func.now(),
        url_count=stored_url_count(SITEMAPS.c.id),
    )
)
# Else an index that is unchanged would list only the documents that are left.
_read_parents_again = (
    update(SITEMAPS)
    .where(
        SITEMAPS.c.id.in_(
            select(SITEMAP_LINKS.c.parent_id).where(
                SITEMAP_LINKS.c.child_id.in_(_pending_sitemap_ids().where(_never_asked))
            )
        )
    )
    .values(etag=None, last_modified=None, content_hash=None)
)
_remove_never_asked = delete(SITEMAPS).where(
    SITEMAPS.c.id.in_(_pending_sitemap_ids().where(_never_asked))
)
_close_unasked = (
    update(SITEMAP_SCANS)
    .where(_is_pending, SITEMAP_SCANS.c.sitemap_id.in_(_pending_sitemap_ids().where(~_never_asked)))
    .values(state=SitemapScanState.UNREAD, error_code=NOT_ASKED, finished_at=func.now())
)


async def close_unfinished(session: AsyncSession, scan_id: int, code: str | None) -> None:
    """Close the unfinished documents of a scan that ends; `code` is the reason."""
    if not await session.scalar(_any_pending, {"scan": scan_id}):
        return
    opened = await session.execute(_break_off, {"scan": scan_id, "code": code})
    ids = list(opened.scalars())
    if ids:
        limited = code == UrlLimitReached.code
        status = SitemapStatus.COMPLETED if limited else SitemapStatus.FAILED
        await session.execute(_count_broken_off, {"ids": ids, "code": code, "status": status})
    await session.execute(_read_parents_again, {"scan": scan_id})
    await session.execute(_remove_never_asked, {"scan": scan_id})
    await session.execute(_close_unasked, {"scan": scan_id})


@dataclass(frozen=True, slots=True)
class ScanView(View):
    """One scan of a site, across all attempts of its job."""

    id: Annotated[Count, Example(7)]
    job_id: Annotated[UUID, Example(Shown.job_id)]
    state: Annotated[ScanState, one_of(ScanState), Example("published")]
    scope: Annotated[
        ScanScope,
        one_of(ScanScope),
        Example("full"),
        Field(description="How much of the site the scan covers."),
    ]
    partial: Annotated[bool, Example(False)]
    reasons: Annotated[list[Word], declared(maxItems=100), Example([])]
    error_code: Word | None
    started_at: Annotated[datetime, Example(Shown.noon)]
    finished_at: Annotated[datetime | None, Example(Shown.later)]
    sitemap_count: Annotated[Count, Example(1), Field(description=SITEMAP_COUNT)]
    url_count: Annotated[
        Count, Example(12), Field(description="Number of URLs that the site lists after this scan.")
    ]
    distinct_url_count: Annotated[Count, Example(12)]
    read_url_count: Annotated[
        Count, Example(12), Field(description="Number of URLs that this scan read.")
    ]
    change_counts: Annotated[
        dict[str, Count] | None,
        Example({"added": 2, "removed": 1}),
        Field(description="Number of changes by kind; null if the scan was not published."),
    ]
    published_seq: Annotated[
        Count | None, Example(7), Field(description="Number of the scan in the change feed.")
    ]


async def list_scans(
    session: AsyncSession,
    domain_id: UUID,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[ScanView]:
    """The scans of a site, newest first."""
    scope = CursorScope("scans", (domain_id,))
    before = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = select_view(ScanView, Scan, job_id=Scan.job_uuid).where(Scan.domain_id == domain_id)
    if before is not None:
        statement = statement.where(Scan.id < before)
    statement = statement.order_by(Scan.id.desc())
    return await read_page(session, statement, size, ScanView, lambda row: scope.write(row.id))


async def find_scan_of_job(session: AsyncSession, job_id: int) -> ScanView | None:
    """The scan that a job has begun, if any."""
    statement = select_view(ScanView, Scan, job_id=Scan.job_uuid).where(Scan.job_id == job_id)
    row = (await session.execute(statement)).one_or_none()
    return ScanView(*row) if row else None


async def find_partial_scan(session: AsyncSession, domain_id: UUID) -> ScanView | None:
    """The last published scan of the whole site, if it is partial."""
    statement = (
        select_view(ScanView, Scan, job_id=Scan.job_uuid)
        .where(
            Scan.domain_id == domain_id,
            Scan.state == ScanState.PUBLISHED,
            Scan.scope != ScanScope.DOCUMENT,
        )
        .order_by(Scan.id.desc())
        .limit(1)
    )
    row = (await session.execute(statement)).one_or_none()
    return ScanView(*row) if row and row.partial else None


async def changes_of_last_scan(session: AsyncSession, domain_id: UUID) -> dict[str, int] | None:
    """What the last published scan of a site changed, by kind; None if there is none."""
    published = select(Scan.change_counts).where(
        Scan.domain_id == domain_id, Scan.published_seq.is_not(None)
    )
    newest = published.order_by(Scan.published_seq.desc()).limit(1)
    return (await session.execute(newest)).scalar()


async def list_scan_documents(session: AsyncSession, scan_id: int) -> list[DocumentRead]:
    """Documents of a scan: those that could not be read, the latest ones, those that wait."""
    statement = (
        select_view(DocumentRead, SitemapScan, url=Sitemap.url)
        .join(Sitemap, Sitemap.id == SitemapScan.sitemap_id)
        .where(SitemapScan.scan_id == scan_id)
        .order_by(
            case((SitemapScan.state.in_(TROUBLED), 0), else_=1),
            SitemapScan.finished_at.desc().nulls_last(),
            Sitemap.url,
        )
        .limit(100)
    )
    return [DocumentRead(*row) for row in await session.execute(statement)]


async def list_unread_documents(session: AsyncSession, scan_id: int) -> list[DocumentRead]:
    """Documents that a scan could not read to their end, unread ones first."""
    documents = await list_scan_documents(session, scan_id)
    troubled = [document for document in documents if document.state in TROUBLED]
    return sorted(troubled, key=lambda document: TROUBLED.index(document.state))


@dataclass(frozen=True, slots=True)
class ScanPoint:
    """One ended scan of a site."""

    id: int
    domain_id: UUID
    state: ScanState
    partial: bool
    started_at: datetime
    finished_at: datetime | None
    url_count: int
    change_counts: dict[str, int] | None

    @property
    def seconds(self) -> float:
        """How long it took; zero while it runs."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else 0.0


async def recent_scans(
    session: AsyncSession, domain_ids: Sequence[UUID], count: int = 20
) -> dict[UUID, list[ScanPoint]]:
    """The last scans of each of these sites, the oldest first."""
    if not domain_ids:
        return {}
    given = literal(list(domain_ids), ARRAY(Uuid()))
    sites = select(func.unnest(given).label("id")).subquery("sites")
    latest = (
        select_view(ScanPoint, Scan)
        .where(Scan.domain_id == sites.c.id, Scan.state != ScanState.RUNNING)
        .order_by(Scan.id.desc())
        .limit(count)
        .lateral("latest")
    )
    statement = select(*latest.c).select_from(sites.join(latest, true())).order_by(latest.c.id)
    found: dict[UUID, list[ScanPoint]] = {domain_id: [] for domain_id in domain_ids}
    for row in await session.execute(statement):
        point = ScanPoint(*row)
        found[point.domain_id].append(point)
    return found


# What a chart has room for.
MAX_POINTS = 90


async def urls_over_time(
    session: AsyncSession, domain_id: UUID, days: int
) -> list[tuple[datetime, int]]:
    """How many URLs a site had after its published scans of the last days, the oldest first.

    Of more scans than a chart has room for, the last in each of equal parts of this time.
    """
    at, now = extract("epoch", Scan.finished_at), extract("epoch", func.now())
    part = func.width_bucket(at, func.min(at).over(), now + 1, MAX_POINTS).label("part")
    scans = (
        select(Scan.finished_at, Scan.url_count, part)
        .where(
            Scan.domain_id == domain_id,
            Scan.state == ScanState.PUBLISHED,
            Scan.finished_at >= func.now() - timedelta(days=days),
        )
        .subquery()
    )
    statement = (
        select(scans.c.finished_at, scans.c.url_count)
        .ext(distinct_on(scans.c.part))
        .order_by(scans.c.part, scans.c.finished_at.desc())
    )
    return [(at, urls) for at, urls in await session.execute(statement)]
