"""What lists of the newest numbers of the change feed share: their order, and the filter by kinds.

Most scans of a site find nothing new, so lists look at a bounded number of scans. Which numbers and
which columns a list has is up to `publications.py`, `latest_changes.py` and `overview.py`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, CompoundSelect, Select, desc, false, or_, select

from siteatlas.insights.feed_windows import EVENT_KINDS, URL_KINDS
from siteatlas.storage.tables import FEED_EVENTS, SCANS

# The number of published scans that are examined for one list.
MAX_SCANS = 5_000

AnySelect = Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]]


def newest(rows: AnySelect, limit: int) -> Select[*tuple[Any, ...]]:
    """The rows with the highest `seq`, as a part of a union.

    Each part has its own order and limit: otherwise the server would sort the whole union.
    """
    return select(rows.order_by(desc("seq")).limit(limit).subquery())


def newest_unexamined_number(
    domain_id: UUID | None = None, before: int | None = None
) -> Select[Any]:
    """The number of the newest scan that a list does not examine; no row if it examines all.

    Of one site or of all sites, counted from the newest scan, or from the newest before a number.
    """
    number = SCANS.c.published_seq
    numbers = select(number).where(number.is_not(None))
    if domain_id is not None:
        numbers = numbers.where(SCANS.c.domain_id == domain_id)
    if before is not None:
        numbers = numbers.where(number < before)
    return numbers.order_by(number.desc()).offset(MAX_SCANS).limit(1)


def has_counted(change_counts: ColumnElement[Any], kinds: frozenset[str]) -> ColumnElement[bool]:
    """SQL condition: a scan counted changes of URLs of one of these kinds."""
    counted = (change_counts.has_key(kind) for kind in sorted(kinds & URL_KINDS))
    return or_(false(), *counted)


def has_events(scan_id: ColumnElement[Any], kinds: frozenset[str] | None) -> ColumnElement[bool]:
    """SQL condition: a scan has events of documents or of its site, of these kinds or of any."""
    if kinds is not None and kinds.isdisjoint(EVENT_KINDS):
        return false()
    events = select(FEED_EVENTS.c.id).where(FEED_EVENTS.c.scan_id == scan_id)
    return of_kinds(events, kinds).exists()


def of_kinds(events: Select[Any], kinds: frozenset[str] | None) -> Select[Any]:
    """Only the events of these kinds, or all of them if `kinds` is None."""
    if kinds is None:
        return events
    return events.where(FEED_EVENTS.c.kind.in_(sorted(kinds & EVENT_KINDS)))
