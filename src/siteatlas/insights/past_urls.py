"""The URLs of a site as they were at a past number of the change feed.

Stored rows are the present. The first change of an entry after the number has the state before it,
which is the state at the number; an entry without one is as it was. A URL that moved has its change
with the document that it moved to. Changes that are not published yet are undone in the same way.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    and_,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB, REAL
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import LateralFromClause

from siteatlas.errors import InputError, PastStateUnavailable
from siteatlas.insights.feed_positions import FeedHeadView, last_number_before, read_head
from siteatlas.insights.pages import MAX_BIGINT
from siteatlas.storage.models import FeedEventKind
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, SCANS, URL_CHANGES

# A time of the past, or a number of the feed.
PointInTime = datetime | int
# Behind all numbers: the place of a change that is not published.
LAST = MAX_BIGINT


async def find_past_number(session: AsyncSession, domain_id: UUID, point: PointInTime) -> int:
    """The number at which a site has the state of that time; PastStateUnavailable if it is lost."""
    head = await read_head(session)
    earliest = await _earliest_number(session, domain_id, head)
    number = point if isinstance(point, int) else await _number_at(session, point, earliest)
    if number > head.seq:
        raise PastStateUnavailable(head.limit_text, earliest_seq=earliest)
    if number < earliest:
        raise PastStateUnavailable(earliest_seq=earliest)
    return number


async def require_past_number(session: AsyncSession, number: int) -> None:
    """Raise PastStateUnavailable if the changes after a number are no longer retained."""
    head = await read_head(session)
    if number < head.retained_from:
        raise PastStateUnavailable(earliest_seq=head.retained_from)


async def _number_at(session: AsyncSession, moment: datetime, earliest: int) -> int:
    """The last number that was published up to a moment, which is not in the future.

    Scans before the earliest number are not read: if all others are later, so is that number.
    """
    if moment > (await session.execute(select(func.now()))).scalar_one():
        raise InputError("The time is in the future.")
    return await last_number_before(session, moment, after=earliest - 1, inclusive=True)


async def _earliest_number(session: AsyncSession, domain_id: UUID, head: FeedHeadView) -> int:
    """The first number at which the state of a site is known; beyond the head if it never is.

    Before the last silent read of one of its documents it is not; see `baseline` in the glossary.
    """
    told = select(FEED_EVENTS.c.id).where(
        FEED_EVENTS.c.scan_id == SCANS.c.id, FEED_EVENTS.c.kind == FeedEventKind.BASELINE
    )
    last_baseline = (
        select(func.max(SCANS.c.published_seq))
        .where(
            SCANS.c.domain_id == domain_id,
            SCANS.c.published_seq > head.retained_from,
            told.exists(),
        )
        .scalar_subquery()
    )
    site = select(DOMAINS.c.baseline_scan_id, last_baseline.label("number"))
    found = (await session.execute(site.where(DOMAINS.c.id == domain_id))).one()
    if found.baseline_scan_id is None:
        return head.seq + 1
    return max(head.retained_from, found.number or 0)


def as_of(window: Subquery, number: int) -> Subquery:
    """Rows of stored URLs as they were at a number; what was not listed then has `removed_at`."""
    own = _first_change(window, number)
    left = _first_departure(window, number, own)
    has_left = _is_earlier(left, own)
    is_past = or_(own.c.place.is_not(None), has_left)
    state = case((has_left, left.c.state), else_=own.c.state)
    was_listed = case((is_past, state.is_not(None)), else_=window.c.removed_at.is_(None))
    then: dict[str, ColumnElement[Any]] = {
        "lastmod": cast(_value(state, "lastmod"), DateTime(timezone=True)),
        "lastmod_text": _value(state, "lastmod_text"),
        "changefreq": _value(state, "changefreq"),
        "priority": cast(_value(state, "priority"), REAL),
        "extras": func.jsonb_extract_path(state, literal("extras")),
    }
    columns = [
        case((is_past, then[column.name]), else_=column).label(column.name)
        for column in window.c
        if column.name in then
    ]
    removed = case((was_listed, null()), else_=func.coalesce(window.c.removed_at, func.now()))
    others = [c for c in window.c if c.name not in then and c.name != "removed_at"]
    return (
        select(*others, *columns, removed.label("removed_at"))
        .select_from(window)
        .join(own, true(), isouter=True)
        .join(left, true(), isouter=True)
        .subquery("then")
    )


def _is_earlier(one: LateralFromClause, other: LateralFromClause) -> ColumnElement[bool]:
    """SQL condition: the first change exists, and the second is later or there is none."""
    names = ("place", "scan_id", "not_after")
    order, of_other = [tuple_(*(side.c[name] for name in names)) for side in (one, other)]
    return and_(one.c.place.is_not(None), or_(other.c.place.is_(None), order < of_other))


def _value(state: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    """A value of a listed state, as text."""
    return func.jsonb_extract_path_text(state, literal(name))


def _changes_after(number: int) -> Select[Any]:
    """The first change after a number, and its place in the order of changes.

    Changes that are not published share one place: there the order is that of their scans. A scan
    that took over the changes of one that was not published has them in the order of their reads.
    """
    place = func.coalesce(SCANS.c.published_seq, LAST)
    return (
        select(place.label("place"), SCANS.c.id.label("scan_id"), URL_CHANGES.c.not_after)
        .select_from(URL_CHANGES)
        .join(SCANS, SCANS.c.id == URL_CHANGES.c.scan_id)
        .where(place > number)
        .order_by(place, SCANS.c.id)
        .limit(1)
    )


def _first_change(window: Subquery, number: int) -> LateralFromClause:
    """The first change of an entry in its document; one that moved here was not listed here."""
    changes = URL_CHANGES.c
    nothing = cast(null(), JSONB())
    state = case((changes.previous_sitemap_id.is_(None), changes.before), else_=nothing)
    return (
        _changes_after(number)
        .add_columns(state.label("state"))
        .where(changes.sitemap_id == window.c.sitemap_id, changes.url_hash == window.c.url_hash)
        .correlate(window)
        .lateral("own")
    )


def _first_departure(window: Subquery, number: int, own: LateralFromClause) -> LateralFromClause:
    """The first change by which an entry moved to another document.

    Only looked for if the entry seems not to have been listed.
    """
    seems_absent = case(
        (own.c.place.is_(None), window.c.removed_at.is_not(None)), else_=own.c.state.is_(None)
    )
    changes = URL_CHANGES.c
    return (
        _changes_after(number)
        .add_columns(changes.before.label("state"))
        .where(
            seems_absent,
            changes.previous_sitemap_id == window.c.sitemap_id,
            changes.url_hash == window.c.url_hash,
        )
        .correlate(window, own)
        .lateral("departure")
    )
