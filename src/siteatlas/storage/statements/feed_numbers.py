"""Numbers of the change feed: one for each published scan, and for events that have no such scan.

The row of the head is locked by the last statement of a transaction, after the fence: numbers then
become visible in their order, and nobody waits for more than that statement and its COMMIT.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    Update,
    Uuid,
    bindparam,
    func,
    insert,
    literal,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate

from siteatlas.storage.models import FeedEventKind
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, FEED_HEAD, SCANS

_DOMAIN = bindparam("of_domain", type_=Uuid())
# The clock, not the start of the transaction: it may have waited for locks.
_END = func.clock_timestamp()


def _next_number() -> ReturningUpdate[int]:
    """Take the next number of the feed."""
    return update(FEED_HEAD).values(seq=FEED_HEAD.c.seq + 1).returning(FEED_HEAD.c.seq)


def _scan_numbering() -> Update:
    """Give a scan its number and note it on its site; both rows are locked already."""
    head = _next_number().cte("head")
    numbered = (
        update(SCANS)
        .where(SCANS.c.id == bindparam("of_scan"))
        .values(published_seq=select(head.c.seq).scalar_subquery(), finished_at=_END)
        .returning(SCANS.c.domain_id, SCANS.c.published_seq)
        .cte("numbered")
    )
    return (
        update(DOMAINS)
        .where(DOMAINS.c.id == numbered.c.domain_id)
        .values(last_published_seq=numbered.c.published_seq)
    )


def _event_numbering(
    kind: FeedEventKind, name: ColumnElement[Any], condition: ColumnElement[bool]
) -> Any:
    """Write an event with a number of its own; nothing if its site does not meet the condition."""
    site = select(DOMAINS.c.id, name.label("domain")).where(DOMAINS.c.id == _DOMAIN, condition)
    its_site = site.cte("site")
    head = _next_number().where(select(its_site.c.id).exists()).cte("head")
    noted = (
        update(DOMAINS)
        .where(DOMAINS.c.id == _DOMAIN)
        .values(last_published_seq=select(head.c.seq).scalar_subquery())
        .where(select(head.c.seq).exists())
        .cte("noted")
    )
    event = select(
        head.c.seq,
        bindparam("its_scan", type_=BigInteger()).label("scan_id"),
        its_site.c.id.label("domain_id"),
        its_site.c.domain,
        literal(kind, FEED_EVENTS.c.kind.type).label("kind"),
        bindparam("its_data", type_=JSONB()).label("data"),
    ).join_from(head, its_site, true())
    names = [column.name for column in event.selected_columns]
    return insert(FEED_EVENTS).from_select(names, event).add_cte(noted)


NUMBER_SCAN = _scan_numbering()
NUMBER_FAILURE = _event_numbering(
    FeedEventKind.SCAN_FAILED, DOMAINS.c.domain, DOMAINS.c.watched & DOMAINS.c.deleted_at.is_(None)
)
NUMBER_DELETION = _event_numbering(
    FeedEventKind.DOMAIN_FORGOTTEN, bindparam("its_name", type_=Text()), true()
)
SCAN_OF_JOB = select(SCANS.c.id).where(SCANS.c.job_id == bindparam("of_job"))


async def number_scan(session: AsyncSession, scan_id: int) -> None:
    """Give a scan its number; nothing may follow in the transaction but COMMIT."""
    await session.execute(NUMBER_SCAN, {"of_scan": scan_id})


async def announce_failure(
    session: AsyncSession, domain_id: UUID, job_id: int, error_code: str
) -> None:
    """Write `scan_failed` for a watched site; the transaction should end with this."""
    scan_id = await session.scalar(SCAN_OF_JOB, {"of_job": job_id})
    data = {"error_code": error_code}
    values = {"of_domain": domain_id, "its_scan": scan_id, "its_data": data}
    await session.execute(NUMBER_FAILURE, values)


async def announce_deletion(session: AsyncSession, domain_id: UUID, name: str) -> None:
    """Write `domain_forgotten` for a site that had this name; the transaction ends with this."""
    values = {"of_domain": domain_id, "its_name": name, "its_scan": None, "its_data": {}}
    await session.execute(NUMBER_DELETION, values)
