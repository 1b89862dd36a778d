"""Opens the scan of a claimed job: fence, new scan and stored sitemaps in one statement.

A scan that an earlier attempt opened is not continued here; `catalog.scans` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Row, case, exists, func, literal, null, select, true
from sqlalchemy import bindparam as bound
from sqlalchemy.dialects.postgresql import insert

from siteatlas.catalog.sitemaps import (
    LOAD_MANUAL,
    MAX_LOADED,
    SITEMAP_COLUMNS,
    KnownSitemap,
    known_sitemap,
    with_children,
)
from siteatlas.queue.fence import Claim, fence_values, renew_lease, require_claim
from siteatlas.queue.submission import joined_documents
from siteatlas.storage.schema import DOMAINS, JOBS, SCANS, SITE_HEADERS, SITEMAPS
from siteatlas.storage.session import AsyncSession, Reader

_domain = bound("of_domain", type_=SCANS.c.domain_id.type)
# Joined to the job, so that the site is locked before it, as in every other transaction.
_site = (
    select(
        DOMAINS.c.id,
        DOMAINS.c.baseline_scan_id,
        exists().where(SITE_HEADERS.c.domain_id == _domain).label("has_headers"),
    )
    .where(DOMAINS.c.id == _domain)
    .with_for_update(read=True, key_share=True)
    .cte("site")
)
_held = (
    renew_lease.where(JOBS.c.domain_id == _site.c.id)
    .returning(JOBS.c.id, JOBS.c.job_id, JOBS.c.created_by, joined_documents().label("documents"))
    .cte("held")
)
_opened = (
    insert(SCANS)
    .from_select(
        ["job_id", "job_uuid", "domain_id", "created_by", "max_pages", "scope"],
        select(
            _held.c.id,
            _held.c.job_id,
            _domain,
            _held.c.created_by,
            bound("page_limit", type_=SCANS.c.max_pages.type),
            bound("scan_scope", type_=SCANS.c.scope.type),
        ).where(_held.c.cancel_requested_at.is_(None)),
    )
    .on_conflict_do_nothing(index_elements=[SCANS.c.job_id])
    .returning(SCANS.c.id)
    .cte("opened")
)
_is_first = func.row_number().over() == 1
_manual = LOAD_MANUAL.subquery("manual")
_manual_urls = select(func.array_agg(_manual.c.url)).scalar_subquery()
# Lists of documents are on the first row only. A scan that was just opened has read nothing yet.
_open = (
    select(
        _opened.c.id.label("scan_id"),
        case((_is_first, _held.c.documents)).label("joined"),
        case((_is_first, _manual_urls)).label("manual"),
        case((_is_first, _site.c.baseline_scan_id)).label("baseline"),
        _site.c.has_headers,
        *SITEMAP_COLUMNS,
        null().label("state"),
        literal(0, Integer()).label("read_count"),
    )
    .select_from(_held)
    .join(_opened, true())
    .join(_site, true())
    .outerjoin(SITEMAPS, SITEMAPS.c.domain_id == _domain)
    .limit(MAX_LOADED + 1)
)


@dataclass(frozen=True, slots=True)
class NewScan:
    """A scan that was just opened; `known` is None if the site has too many sitemaps to load.

    `manual` are documents that a user named and that earlier scans read, `joined` those named by
    submissions that joined recent jobs of the site. `has_baseline`: a scan of the site
    was complete. `has_headers`: it has request headers.
    """

    id: int
    has_baseline: bool
    known: dict[UUID, KnownSitemap] | None
    manual: tuple[str, ...]
    joined: tuple[str, ...]
    has_headers: bool


async def open_new_scan(
    session: Reader, claim: Claim, *, lease_seconds: float, progress: float
) -> NewScan | None:
    """Open the first scan of a job.

    None if nothing was opened: the job has a scan, its cancellation was requested, or the claim is
    no longer held.
    """
    values = fence_values(claim, lease_seconds, progress)
    values |= {
        "of_domain": claim.domain_id,
        "domain": claim.domain_id,
        "page_limit": claim.max_pages,
        "scan_scope": claim.scope,
    }
    rows = (await session.execute(_open, values)).all()
    if not rows:
        return None
    joined = next((row.joined for row in rows if row.joined is not None), None)
    manual = next((row.manual for row in rows if row.manual is not None), ())
    return NewScan(
        id=rows[0].scan_id,
        has_baseline=any(row.baseline is not None for row in rows),
        known=await _sitemaps_of_claimed_job(session, rows),
        manual=tuple(manual),
        joined=distinct_documents(joined),
        has_headers=rows[0].has_headers,
    )


async def _sitemaps_of_claimed_job(
    session: Reader, rows: Sequence[Row[*tuple[Any, ...]]]
) -> dict[UUID, KnownSitemap] | None:
    """The sitemaps in the rows that open the scan of a claimed job; None if there are too many."""
    if len(rows) > MAX_LOADED:
        return None
    loaded = {row.id: known_sitemap(row) for row in rows if row.id is not None}
    return await with_children(session, loaded)


# One statement, because every scan begins with both.
_start = renew_lease.returning(joined_documents().label("documents"))


async def report_start(
    session: AsyncSession, claim: Claim, *, lease_seconds: float, progress: float
) -> tuple[str, ...]:
    """The fence of the transaction that opens a scan.

    Returns the documents that submissions have added to recent jobs of the domain.
    """
    values = fence_values(claim, lease_seconds, progress) | {"of_domain": claim.domain_id}
    row = require_claim((await session.execute(_start, values)).first())
    return distinct_documents(row.documents)


def distinct_documents(lists: Sequence[Sequence[str]] | None) -> tuple[str, ...]:
    """The documents of all lists, each once."""
    return tuple(dict.fromkeys(document for some in lists or () for document in some))
