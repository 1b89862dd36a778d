"""What the changes of a scan mean for the site: kinds of arrivals and departures of URLs.

Each read of a document shows what happened to its entries. Here that is compared with the other
documents of the site, in batches: a URL that is also listed elsewhere is a duplicate, one that is
missing elsewhere has moved. What other documents list is found by probing the key of each change in
each document, or by reading all keys of the site in order, whichever is less work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Uuid,
    and_,
    bindparam,
    case,
    delete,
    false,
    func,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import CTE, FromClause

from siteatlas.catalog.removals import removed_rows_counted
from siteatlas.catalog.url_changes import listed_state
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.schema import SITEMAP_URLS, SITEMAPS, URL_CHANGES

# `moved` is final: what it moved from has been removed already.
ARRIVALS = (ChangeKind.ADDED, ChangeKind.BACK, ChangeKind.DUPLICATE_ADDED)
DEPARTURES = (ChangeKind.REMOVED, ChangeKind.EXPIRED, ChangeKind.DUPLICATE_REMOVED)
NEWCOMERS = (*ARRIVALS, ChangeKind.MOVED)

# All keys are read for each batch, so its size is only limited by the length of a transaction.
CHANGES_PER_READ = 50_000

_scan = bindparam("of_scan", type_=BigInteger())
_domain = bindparam("of_domain", type_=Uuid())


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The key of the last change that was classified."""

    sitemap_id: UUID
    url_hash: int


FIRST = ChangePosition(UUID(int=0), -(2**63))


class Lookup(StrEnum):
    """How the other entries are found."""

    PROBE_KEYS = "probe_keys"
    READ_KEYS = "read_keys"

    @property
    def changes_per_batch(self) -> int:
        return 5_000 if self is Lookup.PROBE_KEYS else CHANGES_PER_READ


@dataclass(frozen=True, slots=True)
class SiteSize:
    """How many documents and entries of a site are stored."""

    documents: int
    urls: int

    def lookup(self, changes: int) -> Lookup:
        """The lookup that is less work for a number of changes."""
        probes = changes * self.documents
        reads = -(-changes // CHANGES_PER_READ)
        # Reading a key in order takes about a third of the time of a probe.
        return Lookup.READ_KEYS if probes * 3 > reads * self.urls else Lookup.PROBE_KEYS


_site_size = select(
    func.count().label("documents"), func.coalesce(func.sum(SITEMAPS.c.url_count), 0).label("urls")
).where(SITEMAPS.c.domain_id == _domain)


async def load_site_size(session: AsyncSession, domain_id: UUID) -> SiteSize:
    """The size of a site, from the counters of its documents."""
    row = (await session.execute(_site_size, {"of_domain": domain_id})).one()
    return SiteSize(row.documents, int(row.urls))


@dataclass(frozen=True, slots=True)
class Classification:
    """Which changes to classify: those of a scan of a site, and how to look up other entries."""

    scan_id: int
    domain_id: UUID
    lookup: Lookup = Lookup.PROBE_KEYS


async def classify_arrivals(
    session: AsyncSession, of: Classification, after: ChangePosition
) -> ChangePosition | None:
    """Classify the arrivals of the next batch of changes; None if it was the last one."""
    return await _classify(session, _arrival_statements[of.lookup], of, after)


async def classify_departures(
    session: AsyncSession, of: Classification, after: ChangePosition
) -> ChangePosition | None:
    """Classify the departures of the next batch of changes; None if it was the last one."""
    return await _classify(session, _departure_statements[of.lookup], of, after)


async def _classify(
    session: AsyncSession, statement: Any, of: Classification, after: ChangePosition
) -> ChangePosition | None:
    values = {
        "of_scan": of.scan_id,
        "of_domain": of.domain_id,
        "after_sitemap": after.sitemap_id,
        "after_hash": after.url_hash,
    }
    last = (await session.execute(statement, values)).one_or_none()
    if last is None or last.changes < of.lookup.changes_per_batch:
        return None
    return ChangePosition(last.sitemap_id, last.url_hash)


def _arrivals_statement(lookup: Lookup) -> Any:
    """Set the kinds of arrivals; remove the rows that URLs moved from, which is no other event.

    Whatever else happened to such a row since the last publication is part of the move.
    """
    batch = _batch(ARRIVALS, lookup)
    arrivals = _arrivals(batch, lookup)
    place = and_(URL_CHANGES.c.scan_id == _scan, _is_same(URL_CHANGES, arrivals))
    classified = update(URL_CHANGES).where(place, URL_CHANGES.c.kind != arrivals.c.kind)
    previous = and_(
        SITEMAP_URLS.c.sitemap_id == arrivals.c.moved_from,
        SITEMAP_URLS.c.url_hash == arrivals.c.url_hash,
    )
    earlier = URL_CHANGES.alias("earlier_change")
    changed_from = and_(
        earlier.c.scan_id == _scan,
        earlier.c.sitemap_id == arrivals.c.moved_from,
        earlier.c.url_hash == arrivals.c.url_hash,
    )
    before = func.coalesce(
        select(earlier.c.before).where(changed_from).scalar_subquery(),
        select(listed_state(SITEMAP_URLS.c)).where(previous).scalar_subquery(),
    )
    left = (
        update(SITEMAP_URLS)
        .where(previous, SITEMAP_URLS.c.removed_at.is_(None))
        .values(removed_at=func.now(), missing_scan_id=None)
        .returning(SITEMAP_URLS.c.sitemap_id)
        .cte("left_rows")
    )
    untold = delete(URL_CHANGES).where(
        URL_CHANGES.c.scan_id == _scan,
        URL_CHANGES.c.sitemap_id == arrivals.c.moved_from,
        URL_CHANGES.c.url_hash == arrivals.c.url_hash,
    )
    return _end_of(batch).add_cte(
        classified.values(
            kind=arrivals.c.kind,
            previous_sitemap_id=arrivals.c.moved_from,
            before=func.coalesce(before, URL_CHANGES.c.before),
        ).cte("classified"),
        untold.cte("untold"),
        removed_rows_counted(left).cte("counted"),
    )


def _arrivals(batch: CTE, lookup: Lookup) -> CTE:
    seen = _elsewhere(
        batch,
        lookup,
        stays=_stays,
        left_by=_left_by,
        was_removed=lambda rows: _any(~rows.is_listed),
    )
    kind = case(
        (seen.c.stays, ChangeKind.DUPLICATE_ADDED.value),
        (seen.c.left_by.is_not(None), ChangeKind.MOVED.value),
        (or_(batch.c.kind == ChangeKind.BACK, seen.c.was_removed), ChangeKind.BACK.value),
        (_has_history(batch), ChangeKind.BACK.value),
        else_=ChangeKind.ADDED.value,
    )
    moved_from = case((~seen.c.stays, seen.c.left_by))
    return (
        select(
            batch.c.sitemap_id,
            batch.c.url_hash,
            kind.label("kind"),
            moved_from.label("moved_from"),
        )
        .select_from(batch)
        .outerjoin(seen, _is_same(seen, batch))
        .where(batch.c.chosen)
        .cte("arrivals")
    )


def _stays(rows: Rows) -> ColumnElement[bool]:
    known = and_(~rows.is_missing, ~rows.is_of(NEWCOMERS))
    reports_url = or_(
        rows.is_of((ChangeKind.MOVED,)), and_(rows.is_of(NEWCOMERS), rows.comes_first)
    )
    return _any(and_(rows.is_listed, or_(known, reports_url)))


def _left_by(rows: Rows) -> ColumnElement[Any]:
    key = rows.other.c.sitemap_id
    # min() takes no uuid before PostgreSQL 18.
    ids = func.array_agg(aggregate_order_by(key, key), type_=ARRAY(Uuid())).filter(rows.leaves)
    return Grouping(ids)[1]


def _has_history(batch: CTE) -> ColumnElement[bool]:
    """SQL condition: the entry was listed before, though its row is no longer kept."""
    earlier = URL_CHANGES.alias("earlier")
    return (
        select(earlier.c.scan_id)
        .where(_is_same(earlier, batch), earlier.c.scan_id != _scan)
        .correlate(batch)
        .exists()
    )


def _departures_statement(lookup: Lookup) -> Any:
    """Set the kinds of departures: a URL that another document still lists stays in the site.

    Of several departures of a URL in one scan, that with the lowest id reports the URL; first of
    all those of entries that were listed before the scan, since they are counted.
    """
    batch = _batch(DEPARTURES, lookup)
    seen = _elsewhere(
        batch,
        lookup,
        stays=lambda rows: _any(
            or_(rows.is_listed, and_(rows.is_of(DEPARTURES), rows.departs_first))
        ),
    )
    departures = (
        select(batch.c.sitemap_id, batch.c.url_hash, seen.c.stays)
        .select_from(batch)
        .outerjoin(seen, _is_same(seen, batch))
        .where(batch.c.chosen)
        .cte("departures")
    )
    kind = case(
        (departures.c.stays, ChangeKind.DUPLICATE_REMOVED.value),
        (URL_CHANGES.c.evidence.is_(None), ChangeKind.EXPIRED.value),
        else_=ChangeKind.REMOVED.value,
    )
    place = and_(URL_CHANGES.c.scan_id == _scan, _is_same(URL_CHANGES, departures))
    classified = update(URL_CHANGES).where(place, URL_CHANGES.c.kind != kind).values(kind=kind)
    return _end_of(batch).add_cte(classified.cte("classified"))


def _batch(kinds: tuple[ChangeKind, ...], lookup: Lookup) -> CTE:
    """Some changes of the scan in the order of their keys; `chosen` are those of the kinds."""
    keys = (URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    after = tuple_(
        bindparam("after_sitemap", type_=Uuid()), bindparam("after_hash", type_=BigInteger())
    )
    return (
        select(*keys, URL_CHANGES.c.kind, URL_CHANGES.c.kind.in_(kinds).label("chosen"))
        .where(URL_CHANGES.c.scan_id == _scan, tuple_(*keys) > after)
        .order_by(*keys)
        .limit(lookup.changes_per_batch)
        .cte("batch")
    )


def _end_of(batch: CTE) -> Any:
    return (
        select(batch.c.sitemap_id, batch.c.url_hash, func.count().over().label("changes"))
        .order_by(batch.c.sitemap_id.desc(), batch.c.url_hash.desc())
        .limit(1)
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of other documents for the URL of a change, with what this scan changed in them.

    `own` is the change itself.
    """

    other: FromClause
    change: FromClause
    entries: CTE
    own: FromClause

    @property
    def is_listed(self) -> ColumnElement[bool]:
        return self.other.c.removed_at.is_(None)

    @property
    def is_missing(self) -> ColumnElement[bool]:
        return self.other.c.missing_scan_id.is_not(None)

    @property
    def comes_first(self) -> ColumnElement[bool]:
        """Of several rows of the same URL, one reports the URL."""
        return self.other.c.sitemap_id < self.entries.c.sitemap_id

    @property
    def leaves(self) -> ColumnElement[bool]:
        """Whether the URL has left the document, or is missing from it, and was there before.

        What came and left since the last publication was never anywhere for a reader of the feed.
        """
        is_going = and_(self.is_listed, self.is_missing, ~self.is_of(NEWCOMERS))
        has_gone = and_(self.is_of(DEPARTURES), self.change.c.before.is_not(None))
        return or_(is_going, has_gone)

    @property
    def departs_first(self) -> ColumnElement[bool]:
        """Of several departures of the same URL, one reports the URL."""
        was_listed = self.change.c.before.is_not(None)
        own_was_listed = self.own.c.before.is_not(None)
        return or_(
            and_(was_listed, ~own_was_listed),
            and_(was_listed == own_was_listed, self.comes_first),
        )

    def is_of(self, kinds: tuple[ChangeKind, ...]) -> ColumnElement[bool]:
        """Whether this scan changed the row in one of these ways."""
        return func.coalesce(self.change.c.kind.in_(kinds), false())


def _elsewhere(batch: CTE, lookup: Lookup, **results: Callable[[Rows], ColumnElement[Any]]) -> CTE:
    """What the other documents of the site say of the URLs of a batch, by aggregate functions.

    URLs that no other document has are left out. A lateral subquery gets the rows, so that each is
    found by its key, however many there seem to be.
    """
    entries = _other_entries(batch, lookup)
    found = (
        select(SITEMAP_URLS)
        .where(
            SITEMAP_URLS.c.sitemap_id == entries.c.other_id,
            SITEMAP_URLS.c.url_hash == entries.c.url_hash,
        )
        .limit(1)
        .correlate(entries)
        .lateral("other")
    )
    own = URL_CHANGES.alias("own_change")
    rows = Rows(found, URL_CHANGES.alias("other_change"), entries, own)
    other_change = and_(rows.change.c.scan_id == _scan, _is_same(rows.change, found))
    keys = (entries.c.sitemap_id, entries.c.url_hash)
    return (
        select(*keys, *(result(rows).label(name) for name, result in results.items()))
        .select_from(entries)
        .join(found, true())
        .join(own, and_(own.c.scan_id == _scan, _is_same(own, entries)))
        .outerjoin(rows.change, other_change)
        .group_by(*keys)
        .cte("elsewhere")
    )


def _any(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return func.coalesce(func.bool_or(condition), false())


def _is_same(one: Any, other: Any) -> ColumnElement[bool]:
    return and_(one.c.sitemap_id == other.c.sitemap_id, one.c.url_hash == other.c.url_hash)


def _other_entries(batch: CTE, lookup: Lookup) -> CTE:
    """The keys of a batch with the documents that have an entry of the same URL, as `other_id`.

    `batch` has the columns sitemap_id, url_hash and chosen; only the chosen ones are looked up.
    """
    documents = select(SITEMAPS.c.id).where(SITEMAPS.c.domain_id == _domain).cte("documents")
    find = _probe_keys if lookup is Lookup.PROBE_KEYS else _read_keys
    return find(batch, documents)


def _probe_keys(batch: CTE, documents: CTE) -> CTE:
    """One probe of the primary key per change and document: LIMIT rules out any other plan."""
    probe = (
        select(SITEMAP_URLS.c.sitemap_id)
        .where(
            SITEMAP_URLS.c.sitemap_id == documents.c.id,
            SITEMAP_URLS.c.url_hash == batch.c.url_hash,
        )
        .limit(1)
        .correlate(batch, documents)
        .lateral("probe")
    )
    return (
        select(batch.c.sitemap_id, batch.c.url_hash, probe.c.sitemap_id.label("other_id"))
        .select_from(batch)
        .join(documents, documents.c.id != batch.c.sitemap_id)
        .join(probe, true())
        .where(batch.c.chosen)
        .cte("entries")
    )


def _read_keys(batch: CTE, documents: CTE) -> CTE:
    """All keys of each document in order; IS TRUE makes the condition a lookup in a hash table."""
    wanted = SITEMAP_URLS.c.url_hash.in_(select(batch.c.url_hash).where(batch.c.chosen))
    keys = (
        select(SITEMAP_URLS.c.url_hash)
        .where(SITEMAP_URLS.c.sitemap_id == documents.c.id, wanted.is_(true()))
        .offset(0)
        .correlate(documents)
        .lateral("keys")
    )
    found = (
        select(documents.c.id.label("other_id"), keys.c.url_hash)
        .select_from(documents)
        .join(keys, true())
        .cte("found")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    same: Any = and_(found.c.url_hash == batch.c.url_hash, found.c.other_id != batch.c.sitemap_id)
    return (
        select(batch.c.sitemap_id, batch.c.url_hash, found.c.other_id)
        .select_from(batch)
        .join(found, same)
        .where(batch.c.chosen)
        .cte("entries")
    )


_arrival_statements = {lookup: _arrivals_statement(lookup) for lookup in Lookup}
_departure_statements = {lookup: _departures_statement(lookup) for lookup in Lookup}
_count_changes = (
    select(
        URL_CHANGES.c.kind,
        func.count().label("changes"),
        func.count().filter(URL_CHANGES.c.before.is_not(None)).label("listed_before"),
    )
    .where(URL_CHANGES.c.scan_id == _scan)
    .group_by(URL_CHANGES.c.kind)
)


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many changes of URLs a scan has, by kind; `growth` is what they add to distinct URLs."""

    by_kind: dict[str, int] = field(default_factory=dict)
    growth: int = 0

    @property
    def have_departures(self) -> bool:
        """Whether any entry has left its document."""
        return any(kind in self.by_kind for kind in DEPARTURES)


async def count_changes(session: AsyncSession, scan_id: int) -> ChangeCounts:
    """Count the changes of a scan.

    What came and left between two publications is reported, but was never counted.
    """
    rows = (await session.execute(_count_changes, {"of_scan": scan_id})).all()
    came = sum(row.changes for row in rows if row.kind in (ChangeKind.ADDED, ChangeKind.BACK))
    left = sum(
        row.listed_before for row in rows if row.kind in (ChangeKind.REMOVED, ChangeKind.EXPIRED)
    )
    return ChangeCounts({str(row.kind): row.changes for row in rows}, came - left)
