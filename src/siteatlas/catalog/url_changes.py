"""Changes of entries, recorded together with the rows that they describe, and taken over.

The changes of a scan become visible when it is published; there their kinds are judged for the
whole site. Here, `added` is new to its document and `back` was removed from it. `before` is read
and locked by the statement that changes the row; it is null for an entry that was not listed, as
`after` is for one that is no longer. Two changes of one entry in one scan keep the first `before`
and the last `after`. Documents that are read silently are not among the `reported` ones. A scan
takes over the changes of scans that ended without being published (`take_over_changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    FromClause,
    Select,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate

from siteatlas.catalog.url_copy import UrlRows
from siteatlas.catalog.urls import (
    LISTED_VALUES,
    Keys,
    key_parameters,
    of_document,
    unnested_keys,
    unnested_rows,
    update_urls,
)
from siteatlas.storage.models import ChangeKind, RemovalEvidence
from siteatlas.storage.schema import FEED_EVENTS, SCANS, SITEMAP_URLS, URL_CHANGES

# The documents whose changes are recorded, with the time of their last complete read.
Reported = Mapping[UUID, datetime | None]
CHANGES_PER_BATCH = 5_000

_change_columns = (
    "scan_id",
    "sitemap_id",
    "url_hash",
    "kind",
    "url",
    "before",
    "after",
    "not_before",
    "not_after",
)
_scan = bindparam("p_scan_id", type_=BigInteger())
_row = SITEMAP_URLS.c
_nothing = cast(null(), JSONB())


async def record_added(
    session: AsyncSession, rows: UrlRows, reported: Reported, *, scan_id: int
) -> None:
    """Record that rows which were just stored are new to their documents."""
    keys: dict[UUID, list[int]] = {}
    first = 0
    for sitemap_id, count in rows.runs:
        if sitemap_id in reported:
            keys.setdefault(sitemap_id, []).extend(rows.url_hash[first : first + count])
        first += count
    for values in key_parameters(keys):
        await session.execute(_record_added, _reported_values(values, reported, scan_id))


async def change_urls(
    session: AsyncSession,
    rows: UrlRows,
    reported: Reported,
    *,
    scan_id: int,
    only_later: bool = False,
) -> None:
    """Update listed URLs and record how they changed; see `update_urls` for silent reads.

    `only_later`: those that have a later date than the stored ones.
    """
    if not rows:
        return
    if not only_later and reported.keys().isdisjoint(rows.sitemap_ids()):
        await update_urls(session, rows)
        return
    values = _reported_values(rows.parameters(), reported, scan_id)
    await session.execute(_change_rows, values | {"p_only_later": only_later})


async def expire_urls(
    session: AsyncSession, keys: Keys, reported: Reported, *, scan_id: int
) -> None:
    """Set URLs to removed at once: of a window, or by a read that is silent."""
    for values in key_parameters(keys):
        await session.execute(_expire_rows, _reported_values(values, reported, scan_id))


async def mark_missing(session: AsyncSession, keys: Keys, *, scan_id: int) -> None:
    """Mark URLs as missing since this scan, unless they are already."""
    for values in key_parameters(keys):
        await session.execute(_mark_missing, values | {"p_scan_id": scan_id})


def _reported_values(values: dict[str, Any], reported: Reported, scan_id: int) -> dict[str, Any]:
    documents = values["p_sitemap_ids"]
    return values | {
        "p_scan_id": scan_id,
        "p_reported": [document in reported for document in documents],
        "p_not_before": [reported.get(document) for document in documents],
    }


def _record_added_statement() -> Insert:
    keys = unnested_keys()
    added = select(
        _scan,
        _row.sitemap_id,
        _row.url_hash,
        literal(ChangeKind.ADDED.value),
        _row.url,
        _nothing,
        listed_state(_row),
        _not_before(keys),
        func.now(),
    ).join_from(keys, SITEMAP_URLS, _of_same_entry(keys))
    return merged_changes(insert(URL_CHANGES).from_select(list(_change_columns), added))


def _change_rows_statement() -> Insert:
    """The UPDATE of listed entries and, for those that differ, the INSERT of changes.

    With `p_only_later`, rows that are older than the stored ones are left out: of several listings
    of a URL the latest counts.
    """
    rows = unnested_rows()
    earliest = literal(datetime.min.replace(tzinfo=UTC), DateTime(timezone=True))
    new_date = func.coalesce(rows.c.lastmod, earliest)
    old_date = func.coalesce(_row.lastmod, earliest)
    is_later = or_(
        new_date > old_date,
        and_(new_date == old_date, rows.c.fingerprint > _row.fingerprint),
    )
    old = (
        select(*rows.c, *_old_columns()[1:])
        .join_from(rows, SITEMAP_URLS, _of_same_entry(rows))
        .where(or_(~bindparam("p_only_later", type_=Boolean()), is_later))
        .with_for_update(of=SITEMAP_URLS)
        .cte("old")
    )
    values = {name: old.c[name] for name in LISTED_VALUES}
    was_removed = old.c.old_removed_at.is_not(None)
    differs = or_(
        was_removed,
        *(
            old.c[f"old_{name}"].is_distinct_from(old.c[name])
            for name in ("lastmod", "fingerprint", "lastmod_text")
        ),
    )
    changed = select(
        _scan,
        old.c.sitemap_id,
        old.c.url_hash,
        case((was_removed, ChangeKind.BACK.value), else_=ChangeKind.CHANGED.value),
        old.c.url,
        case((was_removed, _nothing), else_=listed_state(_OldState(old))),
        listed_state(old.c),
        _not_before(old),
        func.now(),
    ).where(_reported(old), differs)
    return _insert_with(changed, _update_of(old, **values, missing_scan_id=None, removed_at=None))


def _expire_rows_statement() -> Insert:
    keys = unnested_keys()
    old = (
        select(*keys.c, *_old_columns())
        .join_from(keys, SITEMAP_URLS, _of_same_entry(keys))
        .where(_row.removed_at.is_(None))
        .with_for_update(of=SITEMAP_URLS)
        .cte("old")
    )
    expired = select(
        _scan,
        old.c.sitemap_id,
        old.c.url_hash,
        literal(ChangeKind.EXPIRED.value),
        old.c.url,
        listed_state(_OldState(old)),
        _nothing,
        _not_before(old),
        func.now(),
    ).where(_reported(old))
    return _insert_with(expired, _update_of(old, removed_at=func.now(), missing_scan_id=None))


def _mark_missing_statement() -> Any:
    keys = unnested_keys()
    return (
        update(SITEMAP_URLS)
        .where(_of_same_entry(keys), _row.missing_scan_id.is_(None), _row.removed_at.is_(None))
        .values(missing_scan_id=_scan)
    )


class _OldState:
    def __init__(self, old: CTE) -> None:
        self.lastmod = old.c.old_lastmod
        self.lastmod_text = old.c.old_lastmod_text
        self.changefreq = old.c.old_changefreq
        self.priority = old.c.old_priority
        self.extras = old.c.old_extras


def _old_columns() -> list[ColumnElement[Any]]:
    names = (*LISTED_VALUES, "removed_at")
    return [_row.url, *(_row[name].label(f"old_{name}") for name in names)]


def _of_same_entry(rows: FromClause) -> ColumnElement[bool]:
    return and_(_row.sitemap_id == rows.c.sitemap_id, _row.url_hash == rows.c.url_hash)


def _reported(rows: FromClause) -> ColumnElement[bool]:
    return of_document("reported", Boolean(), rows.c.place)


def _not_before(rows: FromClause) -> ColumnElement[Any]:
    return of_document("not_before", DateTime(timezone=True), rows.c.place)


def _update_of(old: CTE, **values: Any) -> ReturningUpdate[Any]:
    return update(SITEMAP_URLS).where(_of_same_entry(old)).values(**values).returning(_row.url_hash)


def _insert_with(changes: Any, updated: ReturningUpdate[Any]) -> Insert:
    statement = insert(URL_CHANGES).from_select(list(_change_columns), changes)
    return merged_changes(statement.add_cte(updated.cte("updated")))


def listed_state(row: Any) -> ColumnElement[Any]:
    """The values listed for a URL as `before` and `after` hold them; only those that are present.

    `lastmod_text` is what is stored in addition to `lastmod`, not what was listed. `row` has the
    columns of `sitemap_urls` as attributes.
    """
    # As `datetime.isoformat` writes it, whatever the time zone of the session.
    moment = func.to_char(func.timezone("UTC", row.lastmod), 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
    pairs = [
        part
        for name in ("lastmod_text", "changefreq", "priority")
        for part in (literal(name), getattr(row, name))
    ]
    plain = func.jsonb_strip_nulls(func.jsonb_build_object(literal("lastmod"), moment, *pairs))
    extras = func.jsonb_build_object(literal("extras"), row.extras)
    return cast(plain, JSONB()).op("||")(
        case((row.extras.is_(None), cast(literal("{}"), JSONB())), else_=cast(extras, JSONB()))
    )


def merged_changes(statement: Insert) -> Insert:
    """An INSERT of changes that merges them with earlier ones of the same entries and scan."""
    new, old = statement.excluded, URL_CHANGES.c
    return statement.on_conflict_do_update(
        index_elements=[old.scan_id, old.sitemap_id, old.url_hash],
        set_={
            "kind": merged_kind(old, new),
            "after": new.after,
            "not_after": new.not_after,
            "evidence": null(),
        },
    )


def merged_earlier_changes(statement: Insert) -> Insert:
    """An INSERT of changes that merges them with later ones of the same entries and scan."""
    earlier, later = statement.excluded, URL_CHANGES.c
    return statement.on_conflict_do_update(
        index_elements=[later.scan_id, later.sitemap_id, later.url_hash],
        set_={
            "before": earlier.before,
            "not_before": earlier.not_before,
            "kind": merged_kind(earlier, later),
            "previous_sitemap_id": func.coalesce(
                later.previous_sitemap_id, earlier.previous_sitemap_id
            ),
        },
    )


def merged_kind(earlier: Any, later: Any) -> ColumnElement[Any]:
    """The kind of two changes of one entry, of which the first `before` and last `after` are kept.

    What has moved stays so while it is listed: the row that it moved from is removed already. A
    resumed scan may change it again.
    """
    return case(
        (later.after.is_(None), later.kind),
        (earlier.kind == ChangeKind.MOVED, earlier.kind),
        (earlier.before.is_not(None), ChangeKind.CHANGED.value),
        (earlier.after.is_not(None), earlier.kind),
        else_=later.kind,
    )


def insert_departures(moves: FromClause, evidence: ColumnElement[Any]) -> Insert:
    """The INSERT of the departures of moved URLs from the documents that they were in.

    Whatever happened to such an entry in the same scan came later: the URL was listed there again.
    """
    rows = {
        "scan_id": moves.c.scan_id,
        "sitemap_id": moves.c.previous_sitemap_id,
        "url_hash": moves.c.url_hash,
        "kind": literal(ChangeKind.REMOVED, URL_CHANGES.c.kind.type),
        "url": moves.c.url,
        "before": moves.c.before,
        "not_before": moves.c.not_before,
        "not_after": moves.c.not_after,
        "evidence": evidence,
    }
    statement = insert(URL_CHANGES).from_select(list(rows), select(*rows.values()))
    return merged_earlier_changes(statement)


# Statements of every scan are built once: building one takes as long as running it.
_record_added = _record_added_statement()
_change_rows = _change_rows_statement()
_expire_rows = _expire_rows_statement()
_mark_missing = _mark_missing_statement()
_new_scan = bindparam("new_scan", type_=BigInteger())
_old_scan = bindparam("old_scan", type_=BigInteger())


def leftover_scans(domain_id: Any, scan_id: Any) -> Select[Any]:
    """The ids of other scans of a site that left changes or events untold, the latest first.

    A site has one active job at a time, so none of them is still at work.
    """
    published = SCANS.alias("published")
    last = (
        select(func.max(published.c.finished_at))
        .where(published.c.domain_id == domain_id, published.c.published_seq.is_not(None))
        .scalar_subquery()
    )
    return (
        select(SCANS.c.id)
        .where(
            SCANS.c.domain_id == domain_id,
            SCANS.c.id != scan_id,
            SCANS.c.published_seq.is_(None),
            or_(
                last.is_(None),
                SCANS.c.finished_at.is_(None),
                # Scans of a site do not overlap, so older ones have been taken over.
                # A day for a clock set back.
                SCANS.c.finished_at > last - timedelta(days=1),
            ),
            or_(
                select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == SCANS.c.id).exists(),
                select(FEED_EVENTS.c.id)
                .where(FEED_EVENTS.c.scan_id == SCANS.c.id, FEED_EVENTS.c.seq.is_(None))
                .exists(),
            ),
        )
        .order_by(SCANS.c.finished_at.desc().nulls_first(), SCANS.c.id.desc())
    )


_find_leftovers = leftover_scans(bindparam("of_domain", type_=SCANS.c.domain_id.type), _new_scan)


async def find_leftover_scans(
    session: AsyncSession, domain_id: UUID, *, new_scan: int
) -> list[int]:
    """The scans of a site whose changes a new one takes over, the latest first."""
    values = {"of_domain": domain_id, "new_scan": new_scan}
    return list((await session.scalars(_find_leftovers, values)).all())


async def split_moves(session: AsyncSession, scan_id: int) -> bool:
    """Split a batch of the moves of an unpublished scan; False if there are none."""
    return bool((await session.execute(_split_moves, {"old_scan": scan_id})).all())


def _split_moves_statement() -> Any:
    keys = (URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    moves = (
        select(URL_CHANGES)
        .where(URL_CHANGES.c.scan_id == _old_scan, URL_CHANGES.c.kind == ChangeKind.MOVED)
        .limit(CHANGES_PER_BATCH)
        .cte("moves")
    )
    arrivals = (
        update(URL_CHANGES)
        .where(*(key == moves.c[key.name] for key in keys))
        .values(kind=ChangeKind.ADDED, previous_sitemap_id=None, before=null())
        .cte("arrivals")
    )
    evidence = literal(RemovalEvidence.COMPLETE, URL_CHANGES.c.evidence.type)
    return insert_departures(moves, evidence).add_cte(arrivals).returning(literal(1))


_split_moves = _split_moves_statement()
_take_over_events = (
    update(FEED_EVENTS)
    .where(FEED_EVENTS.c.scan_id == _old_scan, FEED_EVENTS.c.seq.is_(None))
    .values(scan_id=_new_scan)
)


async def take_over_changes(session: AsyncSession, old_scan: int, new_scan: int) -> bool:
    """Take over a batch of the changes of a scan; False if that was the last one.

    Its events come with the first batch.
    """
    values = {"old_scan": old_scan, "new_scan": new_scan}
    if await split_moves(session, old_scan):
        return True
    await session.execute(_take_over_events, values)
    taken = (await session.execute(_take_over, values)).all()
    return len(taken) == CHANGES_PER_BATCH


def _take_over_statement() -> Any:
    keys = (URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    batch = (
        select(*keys)
        .where(URL_CHANGES.c.scan_id == _old_scan)
        .limit(CHANGES_PER_BATCH)
        .cte("batch")
    )
    taken = (
        delete(URL_CHANGES)
        .where(*(key == batch.c[key.name] for key in keys))
        .returning(*URL_CHANGES.c)
        .cte("taken")
    )
    others = [column for column in taken.c if column.name != "scan_id"]
    rows = select(_new_scan.label("scan_id"), *others).order_by(
        taken.c.sitemap_id, taken.c.url_hash
    )
    added = insert(URL_CHANGES).from_select(["scan_id", *(c.name for c in others)], rows)
    return merged_earlier_changes(added).returning(literal(1))


_take_over = _take_over_statement()
