"""What is stored of a site, as far as rules judge it: after a scan, and all of its URLs later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    func,
    select,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.findings.history import (
    REMEMBERED,
    PastScan,
    SitemapChanges,
    StoredSite,
    StoredSitemap,
)
from siteatlas.findings.rules import RULES_VERSION
from siteatlas.scanner.events import SitemapType
from siteatlas.storage.models import ChangeKind, ScanState, SitemapScanState
from siteatlas.storage.schema import (
    DOMAINS,
    ROBOTS_FILES,
    SCANS,
    SITEMAP_LINKS,
    SITEMAP_SCANS,
    SITEMAP_URLS,
    SITEMAPS,
    URL_CHANGES,
)

# Scans that are compared; a site that is scanned every hour has more in the time remembered.
MAX_SCANS = 1_000
MAX_FLAPPING = 1_000
# So often, one after another, a sitemap was sent whole without a change.
RESENT = 3

_scan = bindparam("of_scan", type_=BigInteger())
_domain = bindparam("of_domain", type_=Uuid())
_ids = bindparam("ids", type_=ARRAY(Uuid()))
_sitemaps = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.requested_url,
        SITEMAPS.c.discovery_method,
        SITEMAPS.c.type,
        SITEMAPS.c.etag,
        SITEMAPS.c.lastmod,
        SITEMAPS.c.is_window,
        SITEMAPS.c.url_count,
        SITEMAPS.c.vanished_at,
        SITEMAPS.c.gone_at,
        SITEMAP_SCANS.c.state,
        SITEMAP_SCANS.c.http_status,
        SITEMAP_SCANS.c.error_code,
    )
    .outerjoin(
        SITEMAP_SCANS,
        and_(SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id, SITEMAP_SCANS.c.scan_id == _scan),
    )
    .where(SITEMAPS.c.domain_id == _domain)
)
# The scan itself has no end yet, so it comes first by its number.
_scans = (
    select(
        SCANS.c.id,
        SCANS.c.url_count,
        func.coalesce(SCANS.c.finished_at, func.now()),
        SCANS.c.started_at,
        SCANS.c.change_counts,
    )
    .where(
        SCANS.c.domain_id == _domain,
        SCANS.c.published_seq.is_not(None) | (SCANS.c.id == _scan),
        SCANS.c.started_at > func.now() - REMEMBERED,
    )
    .order_by(SCANS.c.id.desc())
    .limit(MAX_SCANS)
)
_parents = select(SITEMAP_LINKS.c.child_id, SITEMAP_LINKS.c.parent_id).where(
    SITEMAP_LINKS.c.child_id == any_(_ids)
)
_is_change = URL_CHANGES.c.kind == ChangeKind.CHANGED
_after, _before = (
    state["lastmod"].astext.cast(DateTime(timezone=True))
    for state in (URL_CHANGES.c.after, URL_CHANGES.c.before)
)
_goes_back = and_(_is_change, _after < _before)
_changes = (
    select(
        URL_CHANGES.c.sitemap_id,
        func.count(),
        func.count().filter(URL_CHANGES.c.kind == ChangeKind.ADDED),
        func.count().filter(_goes_back),
        func.min(URL_CHANGES.c.url).filter(_goes_back),
        func.count().filter(
            _is_change,
            URL_CHANGES.c.after["changefreq"].astext.in_(("yearly", "never")),
            URL_CHANGES.c.not_before > func.now() - REMEMBERED,
        ),
        func.min(URL_CHANGES.c.not_before),
    )
    .where(URL_CHANGES.c.scan_id == _scan)
    .group_by(URL_CHANGES.c.sitemap_id)
)
_flapping = (
    select(URL_CHANGES.c.sitemap_id, func.min(URL_CHANGES.c.url))
    .where(
        URL_CHANGES.c.scan_id == any_(bindparam("scans", type_=ARRAY(BigInteger()))),
        URL_CHANGES.c.kind == ChangeKind.BACK,
    )
    .group_by(URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    .having(func.count() >= 3)
    .limit(MAX_FLAPPING)
)
_last_reads = (
    select(
        SITEMAP_SCANS.c.sitemap_id,
        SITEMAP_SCANS.c.state,
        SITEMAP_SCANS.c.http_status,
        func.row_number()
        .over(partition_by=SITEMAP_SCANS.c.sitemap_id, order_by=SITEMAP_SCANS.c.scan_id.desc())
        .label("place"),
    )
    .where(SITEMAP_SCANS.c.sitemap_id == any_(_ids))
    .subquery("reads")
)
_resent = (
    select(_last_reads.c.sitemap_id)
    .where(
        _last_reads.c.place <= RESENT,
        _last_reads.c.state == SitemapScanState.UNCHANGED,
        _last_reads.c.http_status == 200,
    )
    .group_by(_last_reads.c.sitemap_id)
    .having(func.count() == RESENT)
)


async def load_stored_site(
    session: AsyncSession, scan_id: int, domain_id: UUID, **given: Any
) -> StoredSite:
    """What is stored of a site after this scan; `given` is what the caller knows of it."""
    values = {"of_scan": scan_id, "of_domain": domain_id}
    sitemaps = [StoredSitemap(*row) for row in await session.execute(_sitemaps, values)]
    scans = (await session.execute(_scans, values)).all()
    back = [row.id for row in scans if (row.change_counts or {}).get(ChangeKind.BACK)]
    own = next(row for row in scans if row.id == scan_id)
    has_changes = any((own.change_counts or {}).values())
    return StoredSite(
        now=own[2],
        started_at=own.started_at,
        sitemaps=sitemaps,
        scans=[PastScan(row.url_count, row[2]) for row in scans],
        parents=await _load_parents(session, sitemaps),
        changes={
            row[0]: SitemapChanges(*row[1:])
            for row in (await session.execute(_changes, values) if has_changes else ())
        },
        resent=await _load_resent(session, sitemaps),
        flapping=await _load_flapping(session, back),
        **given,
    )


async def _load_flapping(session: AsyncSession, scans: list[int]) -> dict[UUID, list[str]]:
    flapping: dict[UUID, list[str]] = defaultdict(list)
    # A URL comes back three times in three scans.
    for sitemap_id, url in (
        await session.execute(_flapping, {"scans": scans}) if len(scans) >= 3 else ()
    ):
        flapping[sitemap_id].append(url)
    return flapping


async def _load_parents(
    session: AsyncSession, sitemaps: Sequence[StoredSitemap]
) -> dict[UUID, list[UUID]]:
    if not any(one.type == SitemapType.INDEX for one in sitemaps):
        return {}
    ids = [one.id for one in sitemaps if one.gone_at is None or one.state]
    parents: dict[UUID, list[UUID]] = defaultdict(list)
    for child, parent in await session.execute(_parents, {"ids": ids}):
        parents[child].append(parent)
    return parents


async def _load_resent(session: AsyncSession, sitemaps: Sequence[StoredSitemap]) -> frozenset[UUID]:
    ids = [
        one.id
        for one in sitemaps
        if one.etag and one.state == SitemapScanState.UNCHANGED and one.http_status == 200
    ]
    if not ids:
        return frozenset()
    return frozenset((await session.scalars(_resent, {"ids": ids})).all())


# -- all URLs


class DueSite(NamedTuple):
    """A site whose URLs are to be judged, until `lease`; `scan_id` is its last published scan.

    `rules_version` is None if its URLs were never judged.
    """

    id: UUID
    lease: datetime
    scan_id: int
    rules_version: int | None


# A process that dies leaves the site to another one after this time.
LEASE = timedelta(minutes=10)
_is_running = (
    select(SCANS.c.id).where(SCANS.c.domain_id == DOMAINS.c.id, SCANS.c.state == ScanState.RUNNING)
).exists()
_next_due = (
    select(DOMAINS.c.id)
    .where(DOMAINS.c.judge_urls_at <= func.now(), DOMAINS.c.deleted_at.is_(None), ~_is_running)
    .order_by(DOMAINS.c.judge_urls_at)
    .limit(1)
    .with_for_update(skip_locked=True)
    .scalar_subquery()
)
_last_published = (
    select(func.max(SCANS.c.id))
    .where(SCANS.c.domain_id == DOMAINS.c.id, SCANS.c.published_seq.is_not(None))
    .correlate(DOMAINS)
    .scalar_subquery()
)
_claim_due = (
    update(DOMAINS)
    .where(DOMAINS.c.id == _next_due)
    .values(judge_urls_at=func.now() + LEASE)
    .returning(
        DOMAINS.c.id,
        DOMAINS.c.judge_urls_at,
        func.coalesce(_last_published, 0),
        DOMAINS.c.rules_version,
    )
)
# Not if a scan has changed the site meanwhile: its URLs are judged again then.
_hold_due = (
    select(DOMAINS.c.id)
    .where(
        DOMAINS.c.id == _domain,
        DOMAINS.c.judge_urls_at == bindparam("lease", type_=DateTime(timezone=True)),
        ~_is_running,
    )
    .with_for_update()
)
_end_due = (
    update(DOMAINS)
    .where(DOMAINS.c.id == _domain)
    .values(judge_urls_at=None, rules_version=RULES_VERSION)
)


async def claim_due_site(session: AsyncSession) -> DueSite | None:
    """The site that waits longest for its URLs to be judged; none that is being scanned."""
    row = (await session.execute(_claim_due)).one_or_none()
    return DueSite(*row) if row else None


async def holds_due_site(session: AsyncSession, due: DueSite) -> bool:
    """Lock a site; False if something has changed it since it was claimed.

    A publication locks the row of the site before its findings, so this does too.
    """
    values = {"of_domain": due.id, "lease": due.lease}
    return await session.scalar(_hold_due, values) is not None


async def end_due_site(session: AsyncSession, due: DueSite) -> None:
    """Note that a site was judged."""
    await session.execute(_end_due, {"of_domain": due.id})


class FoundUrls(NamedTuple):
    """What a query over URLs found, by sitemap; None if it concerns several."""

    code: str
    sitemap_id: UUID | None
    total: int
    samples: list[str]


# Of one site; beyond these, alternates are compared among those of the first pages only.
MAX_ALTERNATES = 500_000
_listed = (
    select(
        SITEMAP_URLS.c.sitemap_id,
        SITEMAP_URLS.c.url_hash,
        SITEMAP_URLS.c.url,
        SITEMAP_URLS.c.extras,
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == _domain,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
    .cte("listed")
)
_repeated = (
    select(func.min(_listed.c.url).label("url"))
    .group_by(_listed.c.url_hash)
    .having(func.count() > 1)
    .subquery("repeated")
)
_in_several = select(func.count(), func.array_agg(_repeated.c.url)[1:5])
_twins_of = (
    select(
        _listed.c.sitemap_id,
        (func.count() - 1).label("more"),
        func.max(_listed.c.url).label("url"),
    )
    .group_by(_listed.c.sitemap_id, func.lower(func.rtrim(_listed.c.url, "/")))
    .having(func.count() > 1)
    .subquery("twins")
)
_twins = select(
    _twins_of.c.sitemap_id, func.sum(_twins_of.c.more), func.array_agg(_twins_of.c.url)[1:5]
).group_by(_twins_of.c.sitemap_id)
_alternates = _listed.c.extras["alternates"]
_has_alternates = select(
    select(_listed.c.url).where(_listed.c.extras.has_key("alternates")).exists()
)
_each = func.jsonb_array_elements(_alternates).table_valued("value", name="link")
_link = type_coerce(_each.c.value, JSONB())
_links = (
    select(_listed.c.sitemap_id, _listed.c.url, _link["href"].astext.label("target"))
    .join(_each, true())
    .where(_listed.c.extras.has_key("alternates"), _link.has_key("hreflang"))
    .limit(MAX_ALTERNATES)
    .cte("links")
)
_back = _links.alias("back")
_unreturned = (
    select(_links.c.sitemap_id, _links.c.url, _links.c.target)
    .distinct()
    .where(
        _links.c.url != _links.c.target,
        ~select(_back.c.url)
        .where(_back.c.url == _links.c.target, _back.c.target == _links.c.url)
        .exists(),
    )
    .subquery("unreturned")
)
_target = _listed.alias("target")
_judged = select(
    _unreturned.c.sitemap_id,
    (_unreturned.c.url + " → " + _unreturned.c.target).label("url"),
    case(
        (
            select(_target.c.url).where(_target.c.url == _unreturned.c.target).exists(),
            "hreflang-no-return",
        ),
        (
            func.split_part(_unreturned.c.target, "/", 3).in_(
                select(func.split_part(_links.c.url, "/", 3))
            ),
            "hreflang-target-unlisted",
        ),
    ).label("code"),
).subquery("judged")
_no_return = (
    select(_judged.c.code, _judged.c.sitemap_id, func.count(), func.array_agg(_judged.c.url)[1:5])
    .where(_judged.c.code.is_not(None))
    .group_by(_judged.c.code, _judged.c.sitemap_id)
)


async def find_in_urls(session: AsyncSession, domain_id: UUID) -> list[FoundUrls]:
    """What all URLs of a site show only together; PostgreSQL compares them."""
    values = {"of_domain": domain_id}
    count, samples = (await session.execute(_in_several, values)).one()
    found = [FoundUrls("url-in-several-sitemaps", None, count, samples)] if count else []
    twins = await session.execute(_twins, values)
    found += [FoundUrls("url-twins", row[0], int(row[1]), row[2]) for row in twins]
    if await session.scalar(_has_alternates, values):
        found += [FoundUrls(*row) for row in await session.execute(_no_return, values)]
    return found


_urls_of_site = select(_listed.c.sitemap_id, _listed.c.url)


async def stream_urls(
    session: AsyncSession, domain_id: UUID
) -> AsyncGenerator[Sequence[tuple[UUID, str]], None]:
    """All listed URLs of a site with their sitemaps, some thousands at a time."""
    options = {"yield_per": 2_000}
    result = await session.stream(
        _urls_of_site, {"of_domain": domain_id}, execution_options=options
    )
    async for rows in result.partitions():
        yield cast("Sequence[tuple[UUID, str]]", rows)


_robots = (
    select(ROBOTS_FILES.c.origin, ROBOTS_FILES.c.content)
    .join(DOMAINS, DOMAINS.c.id == ROBOTS_FILES.c.domain_id)
    .where(DOMAINS.c.id == _domain, ROBOTS_FILES.c.origin == DOMAINS.c.origin)
    .order_by(ROBOTS_FILES.c.id.desc())
    .limit(1)
)


async def load_robots(session: AsyncSession, domain_id: UUID) -> tuple[str, str] | None:
    """The origin of a site with its robots.txt, as it was read last."""
    row = (await session.execute(_robots, {"of_domain": domain_id})).one_or_none()
    return None if row is None else (row.origin, row.content)
