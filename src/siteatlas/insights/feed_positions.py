"""Positions in the change feed: the head, the number at a time, readers and their cursors.

A position belongs to one feed, which a restore of the database renews, and is valid in the global
feed as well as in the feed of any site. What is at a position is read by `changes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from siteatlas.errors import CursorExpired, InputError
from siteatlas.insights.pages import CursorScope, parse_bigint
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import FeedHead, Scan

SCOPE = CursorScope("changes")


@dataclass(frozen=True, slots=True)
class FeedHeadView:
    """The last number of the feed. Events up to `retained_from` have been removed."""

    seq: int
    retained_from: int
    feed_id: UUID

    @property
    def limit_text(self) -> str:
        """What to tell a reader whose number is beyond the head."""
        return f"The change feed has only reached number {self.seq}."


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """All events up to the number `done`, and those of the next number up to one of its events."""

    done: int
    event_id: int | None = None
    entry: tuple[UUID, int] | None = None

    @property
    def is_between_numbers(self) -> bool:
        """Whether the position is not inside the events of one number."""
        return self.event_id is None and self.entry is None

    @property
    def reached(self) -> int:
        """The last number of which something has been read."""
        return self.done if self.is_between_numbers else self.done + 1

    def cursor(self, feed_id: UUID) -> str:
        """The position as text that a reader sends back."""
        if self.entry is not None:
            return SCOPE.write(feed_id, self.done, *self.entry)
        if self.event_id is not None:
            return SCOPE.write(feed_id, self.done, self.event_id)
        return SCOPE.write(feed_id, self.done)


async def read_head(session: Reader) -> FeedHeadView:
    """The head of the feed; read before the events, or in the same snapshot."""
    statement = select(FeedHead.seq, FeedHead.retained_from, FeedHead.feed_id)
    return FeedHeadView(*(await session.execute(statement)).one())


async def last_number_before(
    session: Reader,
    moment: datetime,
    *,
    after: int = 0,
    domain_id: UUID | None = None,
    inclusive: bool = False,
) -> int:
    """The last number of a scan that ended before a moment; `after` if there is none behind it.

    With `inclusive`, also of one that ended at that moment. Reads the scans since, newest first.
    """
    ended = Scan.finished_at <= moment if inclusive else Scan.finished_at < moment
    numbers = select(Scan.published_seq).where(Scan.published_seq > after, ended)
    if domain_id is not None:
        numbers = numbers.where(Scan.domain_id == domain_id)
    newest = numbers.order_by(Scan.published_seq.desc()).limit(1)
    return await session.scalar(newest) or after


def start_position(head: FeedHeadView, *, after: int | None, cursor: str | None) -> FeedPosition:
    """Where a request starts: behind a number, at a cursor, or at the oldest event retained."""
    if after is not None and cursor is not None:
        raise InputError("Use either after or cursor, not both.")
    if after is not None:
        return _retained(head, FeedPosition(after))
    found = SCOPE.read(cursor, _parse_feed_position)
    if found is None:
        return FeedPosition(head.retained_from)
    feed_id, position = found
    if feed_id != head.feed_id:
        raise _expired(head)
    return _retained(head, position)


def _retained(head: FeedHeadView, position: FeedPosition) -> FeedPosition:
    """The position, if the feed has all events behind it; CursorExpired otherwise."""
    if position.done < head.retained_from:
        raise _expired(head)
    if position.reached > head.seq:
        raise _expired(head, f"{head.limit_text} Read the current state again.")
    return position


def _expired(head: FeedHeadView, message: str | None = None) -> CursorExpired:
    """The error that names the oldest position from which the feed can still be read."""
    earliest = FeedPosition(head.retained_from).cursor(head.feed_id)
    return CursorExpired(message, earliest_cursor=earliest)


def _parse_feed_position(parts: Sequence[str]) -> tuple[UUID, FeedPosition]:
    """The feed and the position in a cursor of the change feed; ValueError for other parts."""
    feed_id, done, *inside = parts
    event_id = entry = None
    if len(inside) == 1:
        event_id = parse_bigint(inside[0])
    elif inside:
        sitemap_id, url_hash = inside
        entry = (UUID(sitemap_id), parse_bigint(url_hash))
    return UUID(feed_id), FeedPosition(parse_bigint(done), event_id, entry)
