"""Sites: found, registered, watched, changed, deleted, and shown. The caller owns the transaction.

A site is registered by the first scan or import that names it and is watched from then on if its
user asks. `take_due_domains` hands each due site to one scheduler. A deleted site frees its name at
once; `prune_deleted_domains` removes its rows later, in small batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from itertools import product
from typing import Annotated, Any, assert_never
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Double,
    Select,
    Text,
    Uuid,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    literal_column,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, Insert, array, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.paging import (
    CursorScope,
    Page,
    bigint_key,
    page_size,
    parse_bigint,
    read_page,
)
from siteatlas.catalog.urls import delete_rows
from siteatlas.catalog.views import (
    SITEMAP_COUNT,
    Count,
    Example,
    Name,
    Seconds,
    Shown,
    SitemapTypeWord,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import DomainNotFound, InputError, NoSitemap
from siteatlas.findings.rules import Severity, all_rules
from siteatlas.net.address import WebAddress, parse_site, parse_url
from siteatlas.net.egress import registrable_domain
from siteatlas.net.gate import OriginHeaders, checked_headers
from siteatlas.scanner.events import DiscoveryMethod, Verdict
from siteatlas.storage.models import (
    Base,
    Candidate,
    Domain,
    FeedEvent,
    Job,
    LastScanStatus,
    RobotsFile,
    Scan,
    ScanScope,
    ScanState,
    SiteHeaders,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapUrl,
    StoredFinding,
    UrlChange,
    User,
)
from siteatlas.storage.schema import DOMAINS
from siteatlas.storage.session import Reader
from siteatlas.text import MAX_TAGS, merged_tags

DEFAULT_INTERVAL_HOURS = 24.0
ROWS_PER_BATCH = 20_000
SEARCH_DAYS = 30
FEW_GUESSES = 12
SCHEDULED = (Domain.watched, ~Domain.paused, Domain.deleted_at.is_(None))


async def find_domain(session: AsyncSession, domain: str, *, lock: bool = False) -> Domain | None:
    """The site of this name, unless it was deleted; with `lock`, its row is locked."""
    statement = select(Domain).where(Domain.domain == domain, Domain.deleted_at.is_(None))
    if lock:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    return (await session.execute(statement)).scalar_one_or_none()


async def lock_domain(
    session: AsyncSession, site: str, check_owner: Callable[[UUID], None] = lambda _: None
) -> Domain:
    """The stored site, locked, if the check of its owner lets one change it."""
    domain = await find_domain(session, parse_site(site).domain, lock=True)
    if domain is None:
        raise DomainNotFound
    check_owner(domain.created_by)
    return domain


async def find_domains(session: AsyncSession, names: Sequence[str]) -> Sequence[Domain]:
    """The sites of these names that are stored and not deleted."""
    statement = select(Domain).where(Domain.domain.in_(names), Domain.deleted_at.is_(None))
    return (await session.execute(statement)).scalars().all()


async def register_domain(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    watch: bool = False,
    max_pages: int | None = None,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    tags: Sequence[str] = (),
) -> Domain:
    """Find or create the site of an address; a deleted one is created again.

    `watch` never unwatches. A site that is watched is due one interval from now at the latest: its
    own, or the default. If another user watches it, its address stays.
    `tags` are added to those of the site; TooManyTags if it would have more than allowed.
    """
    values = registration_values(
        address,
        created_by=created_by,
        max_pages=max_pages,
        scan_interval_hours=scan_interval_hours,
        default_interval_hours=default_interval_hours,
    )
    statement = _register[watch, address.scheme_given]
    found = await session.execute(statement, values, execution_options={"populate_existing": True})
    domain = found.scalar_one()
    if tags:
        await _add_tags(session, domain, tags)
    return domain


async def _add_tags(session: AsyncSession, domain: Domain, tags: Sequence[str]) -> None:
    """Add tags to a registered site; its row is locked by the statement that registered it."""
    domain.tags = merged_tags(domain.tags, tags)
    await session.flush()
    await session.refresh(domain)


def registration_values(
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
) -> dict[str, Any]:
    """The parameters of `registration`."""
    return {
        "its_name": address.domain,
        "its_base_url": base_url_of(address),
        "its_creator": created_by,
        "its_max_pages": max_pages,
        "its_interval": scan_interval_hours,
        "its_default_interval": default_interval_hours,
    }


def registration(*, watch: bool, scheme_given: bool) -> Insert:
    """The statement behind `register_domain`; its parameters are `registration_values`."""
    given = bindparam("its_interval", type_=Domain.scan_interval_hours.type)
    default = bindparam("its_default_interval", type_=Domain.scan_interval_hours.type)
    row = insert(Domain).values(
        domain=bindparam("its_name"),
        base_url=bindparam("its_base_url"),
        created_by=bindparam("its_creator"),
        watched=watch,
        next_scan_at=hours_from_now(func.coalesce(given, default)) if watch else None,
        max_pages=bindparam("its_max_pages"),
        scan_interval_hours=given,
    )
    again = watched_again(row, default)
    if watch:
        kept = again | {"max_pages": func.coalesce(row.excluded.max_pages, Domain.max_pages)}
    else:
        kept = {name: again[name] for name in ("updated_at", "scan_interval_hours")}
    if scheme_given:
        kept["base_url"] = base_url_unless_watched_by_another(row)
    return row.on_conflict_do_update(index_elements=[Domain.domain], set_=kept)


def watched_again(row: Insert, default_hours: ColumnElement[float]) -> dict[str, Any]:
    """What every statement that watches a site writes to it if it is stored already.

    Its next scan is at most an interval away: the one of the new row, else its own, else the
    default. Watching a site again never delays it: only a published scan does.
    """
    interval = func.coalesce(row.excluded.scan_interval_hours, Domain.scan_interval_hours)
    return {
        "updated_at": func.now(),
        "watched": True,
        "paused": False,
        "scan_interval_hours": interval,
        # `least` ignores the NULL of a site that is not watched.
        "next_scan_at": func.least(
            Domain.next_scan_at, hours_from_now(func.coalesce(interval, default_hours))
        ),
    }


def base_url_unless_watched_by_another(row: Insert) -> ColumnElement[str]:
    """The new address of a stored site; the old one if another user watches the site.

    Otherwise anyone who submits the site could choose where its scheduled scans start.
    """
    by_another = Domain.watched & (Domain.created_by != row.excluded.created_by)
    return case((by_another, Domain.base_url), else_=row.excluded.base_url)


def base_url_of(address: WebAddress) -> str:
    """Where later scans begin; without a scheme when none was given, so that both are tried."""
    return address.origin + "/" if address.scheme_given else address.origin.split("://", 1)[1]


def hours_from_now(hours: ColumnElement[Any]) -> ColumnElement[datetime]:
    """SQL value: now plus the scan interval of a domain."""
    return func.now() + _scan_interval(hours)


def _scan_interval(hours: ColumnElement[Any]) -> ColumnElement[timedelta]:
    return func.make_interval(0, 0, 0, 0, 0, 0, hours * 3600.0)


# By (watch, scheme_given).
_register = {
    (watch, scheme_given): registration(watch=watch, scheme_given=scheme_given).returning(Domain)
    for watch, scheme_given in product((False, True), repeat=2)
}


async def register_domains(
    session: AsyncSession,
    addresses: Sequence[WebAddress],
    *,
    created_by: UUID,
) -> dict[str, UUID]:
    """Find or create many sites in one statement; their ids by name.

    In the order of their names, so that two lists of the same sites cannot wait for each other.
    """
    rows = [
        {"domain": address.domain, "base_url": base_url_of(address), "created_by": created_by}
        for address in sorted(addresses, key=lambda address: address.domain)
    ]
    statement = (
        insert(Domain)
        .values(rows)
        .on_conflict_do_update(index_elements=[Domain.domain], set_={"updated_at": func.now()})
        .returning(Domain.domain, Domain.id)
    )
    return {row.domain: row.id for row in (await session.execute(statement)).all()}


@dataclass(frozen=True, slots=True)
class ImportedSite:
    """A site of a list: its address, and its own interval and tags if the list has them."""

    address: WebAddress
    scan_interval_hours: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchedSite:
    """A site that is watched from now on; `is_new` if it was not stored before."""

    id: UUID
    domain: str
    max_pages: int | None
    is_new: bool


# Tags contain no commas.
TAG_SEPARATOR = ","


async def watch_domains(
    session: AsyncSession,
    sites: Sequence[ImportedSite],
    *,
    created_by: UUID,
    default_interval_hours: float,
) -> list[WatchedSite]:
    """Watch these sites, each of which has another domain; known ones keep the tags they have.

    Sites that would have more tags than allowed are left as they are, and are not returned.
    """
    sites = [site for site in sites if len(site.tags) <= MAX_TAGS]
    parameters = {
        "p_domain": [site.address.domain for site in sites],
        "p_base_url": [base_url_of(site.address) for site in sites],
        "p_hours": [site.scan_interval_hours for site in sites],
        "p_tags": [TAG_SEPARATOR.join(site.tags) for site in sites],
        "p_created_by": created_by,
        "p_default_hours": default_interval_hours,
    }
    return [WatchedSite(*row) for row in await session.execute(_watch, parameters)]


def _watch_statement() -> Any:
    """The statement that watches listed sites; made once, because building it takes long.

    In the order of their names, so that two lists of the same sites cannot wait for each other.
    """
    arrays: dict[str, BindParameter[Any]] = {
        name: bindparam(f"p_{name}", type_=ARRAY(of))
        for name, of in {"domain": Text, "base_url": Text, "hours": Double, "tags": Text}.items()
    }
    listed = func.unnest(*arrays.values()).table_valued(*arrays, name="listed").render_derived().c
    usual: BindParameter[float] = bindparam("p_default_hours", type_=Double())
    columns: dict[str, ColumnElement[Any]] = {
        "domain": listed.domain,
        "base_url": listed.base_url,
        "created_by": bindparam("p_created_by", type_=Uuid()),
        "watched": literal(True),
        "next_scan_at": hours_from_now(func.coalesce(listed.hours, usual)),
        "scan_interval_hours": listed.hours,
        "tags": func.string_to_array(listed.tags, TAG_SEPARATOR),
    }
    rows = select(*columns.values()).order_by(listed.domain)
    new = insert(DOMAINS).from_select(list(columns), rows)
    has_scheme = new.excluded.base_url.contains("://", autoescape=True)
    all_tags: Any = literal_column(
        "ARRAY(SELECT DISTINCT tag FROM unnest(domains.tags || excluded.tags) AS tag ORDER BY tag)"
    )
    # A row that was inserted, not updated, has no version before it.
    is_new: Any = literal_column("domains.xmax = 0")
    # A site that has more tags already keeps them.
    may_have = func.greatest(MAX_TAGS, func.cardinality(Domain.tags))
    return new.on_conflict_do_update(
        index_elements=[Domain.domain],
        set_=watched_again(new, usual)
        | {
            # As when a site is added: only an address with a scheme replaces the stored one.
            "base_url": case(
                (has_scheme, base_url_unless_watched_by_another(new)), else_=Domain.base_url
            ),
            "tags": all_tags,
        },
        where=func.cardinality(all_tags) <= may_have,
    ).returning(Domain.id, Domain.domain, Domain.max_pages, is_new.label("is_new"))


_watch = _watch_statement()


class Unset(Enum):
    """The sentinel for a setting that is not given; None sets it to the default."""

    UNSET = auto()


UNSET = Unset.UNSET


async def change_domain(
    session: AsyncSession,
    domain: Domain,
    *,
    watched: bool | None = None,
    paused: bool | None = None,
    scan_interval_hours: float | Unset | None = UNSET,
    max_pages: int | Unset | None = UNSET,
    tags: Sequence[str] | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
) -> None:
    """Change the given settings of a site and leave the others.

    Watching a site that is not watched makes it due at once. An interval that differs from the
    last one counts from the last scan, or from now; None is the default.
    """
    if watched is not None and watched is not domain.watched:
        domain.watched = watched
        domain.next_scan_at = func.now() if watched else None
    elif domain.watched and scan_interval_hours not in (UNSET, domain.scan_interval_hours):
        domain.next_scan_at = _after_last_scan(scan_interval_hours or default_interval_hours)
    if scan_interval_hours is not UNSET:
        domain.scan_interval_hours = scan_interval_hours
    if paused is not None:
        domain.paused = paused
    if max_pages is not UNSET:
        domain.max_pages = max_pages
    if tags is not None:
        domain.tags = list(tags)
    domain.updated_at = func.now()
    await session.flush()
    await session.refresh(domain)


def _after_last_scan(hours: float) -> ColumnElement[datetime]:
    last = func.coalesce(Domain.last_scan_at, func.now())
    return func.greatest(func.now(), last + _scan_interval(literal(hours)))


async def take_due_domains(
    session: AsyncSession, limit: int, default_interval_hours: float
) -> Sequence[Domain]:
    """Watched sites that are due; each gets the time of its next scan.

    Rows that another scheduler is taking at this moment are skipped, so a site is taken once
    however many schedulers run. A missed time is made up once, not several times.
    """
    due = (
        select(Domain.id)
        .where(*SCHEDULED, Domain.next_scan_at <= func.now())
        .order_by(Domain.next_scan_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    statement = (
        update(Domain)
        .where(Domain.id == due.c.id)
        .values(
            next_scan_at=hours_from_now(
                func.coalesce(Domain.scan_interval_hours, default_interval_hours)
            )
        )
        .returning(Domain)
        .execution_options(synchronize_session=False)
    )
    return (await session.execute(statement)).scalars().all()


async def postpone_scan(session: AsyncSession, domain_id: UUID, seconds: float) -> None:
    """Make a watched site due again after `seconds`."""
    await session.execute(
        update(Domain)
        .where(Domain.id == domain_id, Domain.watched)
        .values(next_scan_at=func.now() + timedelta(seconds=seconds))
        .execution_options(synchronize_session=False)
    )


async def has_baseline(session: AsyncSession, domain_id: UUID) -> bool:
    """Whether a scan of a site was complete, so that changes after it are reported."""
    statement = select(Domain.baseline_scan_id).where(Domain.id == domain_id)
    return await session.scalar(statement) is not None


async def was_searched(session: AsyncSession, domain_id: UUID) -> bool:
    """Whether the site has no sitemap as of its last scan, and a full search lately found none.

    A quick search leaves a few candidates at common paths, a full one leaves dozens.
    """
    lately = Candidate.checked_at > func.now() - timedelta(days=SEARCH_DAYS)
    guesses = (
        select(func.count())
        .where(
            Candidate.domain_id == Domain.id,
            Candidate.method == DiscoveryMethod.COMMON_PATH,
            lately,
        )
        .scalar_subquery()
    )
    statement = select(Domain.last_error_code, guesses).where(Domain.id == domain_id)
    error, found = (await session.execute(statement)).one()
    return bool(error == NoSitemap.code and found > FEW_GUESSES)


async def find_site_headers(session: Reader, domain_id: UUID) -> OriginHeaders | None:
    """The request headers of a site, for its scans; only their names may be shown."""
    statement = select(SiteHeaders.origin, SiteHeaders.headers)
    found = await session.execute(statement.where(SiteHeaders.domain_id == domain_id))
    return next((OriginHeaders(*row) for row in found.all()), None)


async def set_site_headers(
    session: AsyncSession, domain: Domain, given: OriginHeaders, user_id: UUID
) -> OriginHeaders | None:
    """Replace the request headers of a locked site; without any, remove them."""
    await session.execute(delete(SiteHeaders).where(SiteHeaders.domain_id == domain.id))
    if not given.values:
        return None
    address, own = parse_url(given.origin), parse_site(domain.domain)
    is_own = registrable_domain(address.host) == registrable_domain(own.host)
    if not address.is_site_root or not is_own:
        raise InputError(f"The origin must be one of the site, such as {own.origin}.")
    headers = OriginHeaders(address.origin, checked_headers(given.values))
    row = {"domain_id": domain.id, "origin": headers.origin, "headers": headers.values}
    await session.execute(insert(SiteHeaders).values(row | {"created_by": user_id}))
    return headers


async def delete_domain(session: AsyncSession, domain: Domain) -> None:
    """Mark a site as deleted and free its name; its rows are removed later, in small batches."""
    domain.domain = tombstone(domain.id)
    domain.deleted_at = func.now()
    domain.watched = False
    domain.next_scan_at = None
    await session.execute(delete(SiteHeaders).where(SiteHeaders.domain_id == domain.id))
    await session.flush()


def tombstone(domain_id: UUID) -> str:
    """The name of a deleted site; no host can have it, because hosts contain no `#`."""
    return f"#{domain_id}"


async def prune_deleted_domains(session: AsyncSession) -> int:
    """Remove a batch of the rows of one deleted site; the site itself when it has no others.

    The lock leaves each site to one process. A deleted site never comes back: the same host, added
    again, is another site.
    """
    deleted = select(Domain.id).where(Domain.deleted_at.is_not(None)).limit(1)
    statement = deleted.with_for_update(skip_locked=True)
    domain_id = (await session.execute(statement)).scalar()
    if domain_id is None:
        return 0
    for model, condition in _rows_of(domain_id):
        if removed := await delete_rows(session, model, condition, ROWS_PER_BATCH):
            return removed
    if detached := await _detach_jobs(session, domain_id):
        return detached
    await session.execute(delete(Domain).where(Domain.id == domain_id))
    return 1


def _rows_of(domain_id: UUID) -> list[tuple[type[Base], ColumnElement[bool]]]:
    """The tables that grow with a site, those that refer to others first."""
    documents = select(Sitemap.id).where(Sitemap.domain_id == domain_id)
    scans = select(Scan.id).where(Scan.domain_id == domain_id)
    return [
        (SitemapUrl, SitemapUrl.sitemap_id.in_(documents)),
        (UrlChange, UrlChange.scan_id.in_(scans)),
        (FeedEvent, FeedEvent.scan_id.in_(scans)),
        (SitemapScan, SitemapScan.scan_id.in_(scans)),
        (SitemapLink, SitemapLink.parent_id.in_(documents)),
        (Sitemap, Sitemap.domain_id == domain_id),
        (Scan, Scan.domain_id == domain_id),
        (Candidate, Candidate.domain_id == domain_id),
        (RobotsFile, RobotsFile.domain_id == domain_id),
    ]


async def _detach_jobs(session: AsyncSession, domain_id: UUID) -> int:
    batch = select(Job.id).where(Job.domain_id == domain_id).limit(1_000).cte("batch")
    detached = await session.execute(
        update(Job)
        .where(Job.id == batch.c.id)
        .values(domain_id=None)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    return len(detached.all())


class DomainState(StrEnum):
    """Which sites to show; `attention`: a failed or partial last scan, or held removals."""

    WATCHED = "watched"
    PAUSED = "paused"
    FAILING = "failing"
    ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class DomainView(View):
    """A site. Its counters are as of its last published scan."""

    id: Annotated[UUID, Example(Shown.domain_id)]
    domain: Annotated[Name, Example("example.com")]
    origin: Annotated[Url | None, Example("https://www.example.com")]
    base_url: Annotated[Url, Example("https://example.com/")]
    watched: Annotated[bool, Example(True)]
    paused: Annotated[bool, Example(False)]
    scan_interval_hours: Annotated[Seconds | None, Example(24.0)]
    next_scan_at: Annotated[datetime | None, Example("2025-11-16T12:00:00Z")]
    max_urls: Count | None
    max_pages: Annotated[Count | None, Field(description="The same as `max_urls`.")]
    last_scan_at: Annotated[datetime | None, Example(Shown.later)]
    last_scan_status: Annotated[
        Annotated[LastScanStatus, one_of(LastScanStatus)] | None, Example("completed")
    ]
    last_error_code: Word | None
    failures_in_a_row: Annotated[SmallCount, Example(0)]
    url_count: Annotated[
        Count,
        Example(12),
        Field(description="Number of listed URLs, including those that are missing."),
    ]
    distinct_url_count: Annotated[Count, Example(12)]
    sitemap_count: Annotated[Count, Example(1), Field(description=SITEMAP_COUNT)]
    missing_count: Annotated[
        Count,
        Example(0),
        Field(
            description="Number of listed URLs that are missing from their sitemaps, without proof "
            "that they were removed."
        ),
    ]
    removals_held_since: Annotated[
        datetime | None,
        Field(description="Since when the removal of missing URLs has been held back."),
    ]
    last_published_seq: Annotated[
        Count | None,
        Example(7),
        Field(description="Number of the last published scan in the change feed."),
    ]
    tags: Annotated[
        list[Word],
        declared(maxItems=1_000),
        Example(["shop"]),
        Field(description="Sorted, in lower case."),
    ]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    updated_at: Annotated[datetime, Example(Shown.later)]


@dataclass(frozen=True, slots=True)
class ListedDomain(DomainView):
    """A site in a list; `reasons` are the codes that say why its last scan is partial.

    `change_count` is of its last published scan, `finding_count` are the errors
    and warnings that are open.
    """

    reasons: Annotated[list[str], Example([])]
    change_count: Annotated[Count, Example(3)]
    finding_count: Annotated[Count, Example(0)]


def _of_last_scan(column: Any) -> ColumnElement[Any]:
    of_site = (Scan.domain_id == Domain.id) & (Scan.state == ScanState.PUBLISHED)
    published = select(column).where(of_site, Scan.scope != ScanScope.DOCUMENT)
    return published.order_by(Scan.id.desc()).limit(1).correlate(Domain).scalar_subquery()


_is_partial = Domain.last_scan_status == LastScanStatus.PARTIAL


def partial_reasons() -> ColumnElement[list[str]]:
    """SQL value: why the last scan of a site is partial; empty if it is not."""
    reasons = case((_is_partial, _of_last_scan(Scan.reasons)))
    return func.coalesce(reasons, literal_column("'[]'::jsonb"))


def unread_document() -> ColumnElement[UUID | None]:
    """SQL value: a document that the last scan of a partial site could not read to its end."""
    troubled = (SitemapScanState.UNREAD, SitemapScanState.CUT)
    documents = select(SitemapScan.sitemap_id).where(
        SitemapScan.scan_id == _of_last_scan(Scan.id), SitemapScan.state.in_(troubled)
    )
    return case((_is_partial, documents.limit(1).correlate(Domain).scalar_subquery()))


def _change_count() -> ColumnElement[int]:
    each = func.jsonb_each_text(Scan.change_counts).table_valued("kind", "count").render_derived()
    statement = (
        select(func.sum(cast(each.c.count, BigInteger))).select_from(Scan).join(each, true())
    )
    last = (Scan.domain_id == Domain.id) & (Scan.published_seq == Domain.last_published_seq)
    return _whole_number(statement.where(last).correlate(Domain).scalar_subquery())


_findings = (
    select(StoredFinding.domain_id, func.count().label("count"))
    .where(StoredFinding.resolved_at.is_(None), StoredFinding.accepted_at.is_(None))
    .where(
        StoredFinding.code.in_(
            [one.code for one in all_rules().values() if one.severity > Severity.NOTE]
        )
    )
    .group_by(StoredFinding.domain_id)
    .subquery("open_findings")
)


def _finding_count() -> ColumnElement[int]:
    of_site = select(_findings.c.count).where(_findings.c.domain_id == Domain.id)
    return _whole_number(of_site.correlate(Domain).scalar_subquery())


def _whole_number(value: Any) -> ColumnElement[int]:
    return cast(func.coalesce(value, 0), BigInteger)


async def find_domain_view(session: AsyncSession, name: str) -> DomainView:
    """The site that a person names, with or without scheme and `www.`."""
    domain = await find_domain(session, parse_site(name).domain)
    if domain is None:
        raise DomainNotFound
    return domain_view(domain)


def domain_view(domain: Domain) -> DomainView:
    """The view of a row that was already read."""
    return DomainView(*(getattr(domain, field.name) for field in fields(DomainView)))


async def find_creator(session: AsyncSession, domain: DomainView) -> str | None:
    """The name of the user who created a site; None if there is no such user any more."""
    user = await session.get(User, domain.created_by)
    return user.name if user is not None else None


# Sorted anew for each page, without an index: sites are few.
_SORT_KEYS: dict[str, ColumnElement[int]] = {
    "urls": _whole_number(Domain.url_count),
    "scanned": _whole_number(func.extract("epoch", Domain.last_scan_at) * 1_000_000),
    "changes": _change_count(),
    "findings": _whole_number(_findings.c.count),
}
# With a minus sign, the highest or the latest comes first.
DOMAIN_SORTS = f"^-?(name|{'|'.join(_SORT_KEYS)})$"


async def list_domains(
    session: AsyncSession,
    *,
    watched: bool | None = None,
    state: DomainState | None = None,
    contains: str | None = None,
    tag: str | None = None,
    sort: str = "name",
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[ListedDomain]:
    """Sites by name, or in another order of `DOMAIN_SORTS`; `contains` is a part of the host."""
    scope = CursorScope("domains", (watched, state and state.value, contains, tag, sort))
    after = scope.read(cursor, _parse_place)
    size = page_size(limit)
    word, is_descending = sort.removeprefix("-"), sort.startswith("-")
    key = _SORT_KEYS.get(word, literal(0))
    key = -key if is_descending else key
    counts = {"change_count": _change_count(), "finding_count": _finding_count()}
    statement = select_view(ListedDomain, Domain, reasons=partial_reasons(), **counts)
    statement = statement.add_columns(key.label("key")).where(Domain.deleted_at.is_(None))
    if word == "findings":
        # One by one, those of all sites would take five times as long.
        statement = statement.outerjoin(_findings, _findings.c.domain_id == Domain.id)
    if watched is not None:
        statement = statement.where(Domain.watched.is_(watched))
    if state is not None:
        statement = statement.where(in_state(state))
    if contains:
        statement = statement.where(func.strpos(Domain.domain, contains.lower()) > 0)
    if tag is not None:
        statement = statement.where(has_tag(tag))
    if word in _SORT_KEYS:
        statement = statement.order_by(key, Domain.domain)
        if after is not None:
            statement = statement.where(tuple_(key, Domain.domain) > tuple_(*map(literal, after)))
    else:
        statement = statement.order_by(Domain.domain.desc() if is_descending else Domain.domain)
        if after is not None:
            name = after[1]
            behind = Domain.domain < name if is_descending else Domain.domain > name
            statement = statement.where(behind)
    return await read_page(
        session,
        statement,
        size,
        lambda *row: ListedDomain(*row[:-1]),
        lambda row: scope.write(row.key, row.domain),
    )


def _parse_place(parts: Sequence[str]) -> tuple[int, str]:
    key, name = parts
    return parse_bigint(key), name


async def most_used_tags(session: AsyncSession, limit: int = 20) -> dict[str, int]:
    """The tags that most sites have, and how many have each."""
    tag = func.unnest(Domain.tags).label("tag")
    counted = select(tag, func.count()).where(Domain.deleted_at.is_(None)).group_by(tag)
    rows = await session.execute(counted.order_by(func.count().desc(), tag).limit(limit))
    return {str(name): count for name, count in rows}


def in_state(state: DomainState) -> ColumnElement[bool]:
    """SQL condition: which sites are in a state."""
    match state:
        case DomainState.WATCHED:
            return Domain.watched & ~Domain.paused
        case DomainState.PAUSED:
            return Domain.watched & Domain.paused
        case DomainState.FAILING:
            return Domain.last_scan_status == LastScanStatus.FAILED
        case DomainState.ATTENTION:
            troubled = Domain.last_scan_status.in_([LastScanStatus.FAILED, LastScanStatus.PARTIAL])
            return troubled | (Domain.missing_count > 0)
        case _:
            assert_never(state)


def has_tag(tag: Any) -> ColumnElement[bool]:
    """SQL condition: a site has a tag; through an index if few sites have it."""
    return Domain.tags.contains(cast(array([tag]), ARRAY(Text())))


def tagged_domains(tag: Any) -> Select[UUID]:
    """The ids of the sites that have a tag."""
    return select(Domain.id).where(Domain.deleted_at.is_(None), has_tag(tag))


@dataclass(frozen=True, slots=True)
class CandidateView(View):
    """An address where a sitemap was looked for, and what was found there."""

    url: Annotated[Url, Example("https://example.com/sitemap_index.xml")]
    method: Annotated[str, one_of(DiscoveryMethod), Example("common_path")]
    verdict: Annotated[str, one_of(Verdict), Example("rejected")]
    reason: Annotated[Word | None, Example("http_not_found")]
    type: SitemapTypeWord | None
    http_status: Annotated[SmallCount | None, Example(404)]
    scan_id: Annotated[Count, Example(7)]
    checked_at: Annotated[datetime, Example(Shown.later)]


async def list_candidates(
    session: AsyncSession,
    domain_id: UUID,
    *,
    verdict: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[CandidateView]:
    """The candidates of a site, in the order of their hash."""
    scope = CursorScope("candidates", (domain_id, verdict))
    after = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = select_view(CandidateView, Candidate).where(Candidate.domain_id == domain_id)
    if verdict is not None:
        statement = statement.where(Candidate.verdict == verdict)
    if after is not None:
        statement = statement.where(Candidate.url_hash > after)
    statement = statement.add_columns(Candidate.url_hash).order_by(Candidate.url_hash)
    return await read_page(
        session,
        statement,
        size,
        lambda *row: CandidateView(*row[:-1]),
        lambda row: scope.write(row.url_hash),
    )
