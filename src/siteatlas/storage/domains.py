"""Write statements on sites. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningInsert

from siteatlas.net.address import WebAddress
from siteatlas.storage.models import Domain

DEFAULT_INTERVAL_HOURS = 24.0
SECONDS_AN_HOUR = 3600.0


async def find_domain(session: AsyncSession, domain: str) -> Domain | None:
    """The site of this name, unless it was deleted."""
    statement = select(Domain).where(Domain.domain == domain, Domain.deleted_at.is_(None))
    return (await session.execute(statement)).scalar_one_or_none()


async def register_domain(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    watch: bool = False,
    max_pages: int | None = None,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
) -> Domain:
    """Find or create the site of an address; a deleted one comes back.

    `watch` never unwatches. A watched site is due one interval from now: its own, or the default.
    """
    values = registered(
        address,
        created_by=created_by,
        max_pages=max_pages,
        scan_interval_hours=scan_interval_hours,
        default_interval_hours=default_interval_hours,
    )
    statement = _returning_domain(watch=watch, scheme_given=address.scheme_given)
    found = await session.execute(statement, values, execution_options={"populate_existing": True})
    return found.scalar_one()


def registered(
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
) -> dict[str, Any]:
    """The parameters of a registration."""
    return {
        "its_name": address.domain,
        "its_base_url": _base_url(address),
        "its_creator": created_by,
        "its_max_pages": max_pages,
        "its_interval": scan_interval_hours,
        "its_default_interval": default_interval_hours,
    }


@cache
def _returning_domain(*, watch: bool, scheme_given: bool) -> ReturningInsert[Domain]:
    return registration(watch=watch, scheme_given=scheme_given).returning(Domain)


def registration(*, watch: bool, scheme_given: bool) -> Insert:
    """The statement behind `register_domain`, to be made once and given `registered` values."""
    given = bindparam("its_interval", type_=Domain.scan_interval_hours.type)
    default = bindparam("its_default_interval", type_=Domain.scan_interval_hours.type)
    row = insert(Domain).values(
        domain=bindparam("its_name"),
        base_url=bindparam("its_base_url"),
        created_by=bindparam("its_creator"),
        watched=watch,
        next_scan_at=_hours_from_now(func.coalesce(given, default)) if watch else None,
        max_pages=bindparam("its_max_pages"),
        scan_interval_hours=given,
    )
    kept: dict[str, Any] = {
        "deleted_at": None,
        "updated_at": func.now(),
        "scan_interval_hours": func.coalesce(
            row.excluded.scan_interval_hours, Domain.scan_interval_hours
        ),
    }
    if scheme_given:
        kept["base_url"] = row.excluded.base_url
    if watch:
        kept |= {
            "watched": True,
            "paused": False,
            "next_scan_at": _hours_from_now(
                func.coalesce(given, Domain.scan_interval_hours, default)
            ),
            "max_pages": func.coalesce(row.excluded.max_pages, Domain.max_pages),
        }
    return row.on_conflict_do_update(index_elements=[Domain.domain], set_=kept)


def _base_url(address: WebAddress) -> str:
    """Where later scans begin; without a scheme when none was given, so that both are tried."""
    return address.origin + "/" if address.scheme_given else address.origin.split("://", 1)[1]


async def register_domains(
    session: AsyncSession, addresses: Sequence[WebAddress], *, created_by: UUID
) -> dict[str, UUID]:
    """Find or create many sites in one statement; their ids by name.

    In the order of their names, so that two lists of the same sites cannot wait for each other.
    """
    rows = [
        {"domain": address.domain, "base_url": _base_url(address), "created_by": created_by}
        for address in sorted(addresses, key=lambda address: address.domain)
    ]
    statement = (
        insert(Domain)
        .values(rows)
        .on_conflict_do_update(
            index_elements=[Domain.domain], set_={"deleted_at": None, "updated_at": func.now()}
        )
        .returning(Domain.domain, Domain.id)
    )
    return {row.domain: row.id for row in (await session.execute(statement)).all()}


def _hours_from_now(hours: ColumnElement[Any]) -> ColumnElement[datetime]:
    return func.now() + func.make_interval(0, 0, 0, 0, 0, 0, hours * SECONDS_AN_HOUR)


async def change_domain(
    session: AsyncSession,
    domain: Domain,
    *,
    watched: bool | None = None,
    paused: bool | None = None,
    scan_interval_hours: float | None = None,
    max_pages: int | None = None,
) -> None:
    """Change what was given and leave the rest. Watching a site makes it due at once."""
    if watched is not None:
        domain.watched = watched
        domain.next_scan_at = func.now() if watched else None
    if paused is not None:
        domain.paused = paused
    if scan_interval_hours is not None:
        domain.scan_interval_hours = scan_interval_hours
    if max_pages is not None:
        domain.max_pages = max_pages
    domain.updated_at = func.now()
    await session.flush()
    await session.refresh(domain)


async def delete_domain(session: AsyncSession, domain: Domain) -> None:
    """Mark a site as deleted; its rows are removed later, in small steps."""
    domain.deleted_at = func.now()
    domain.watched = False
    domain.next_scan_at = None
    await session.flush()


async def take_due_domains(
    session: AsyncSession, limit: int, default_interval_hours: float
) -> Sequence[Domain]:
    """Watched sites whose time has come, each moved on to its next time.

    Rows that another scheduler is taking at this moment are passed over, so a site is taken once
    however many schedulers run. A missed time is made up once, not several times.
    """
    due = (
        select(Domain.id)
        .where(
            Domain.watched,
            ~Domain.paused,
            Domain.deleted_at.is_(None),
            Domain.next_scan_at <= func.now(),
        )
        .order_by(Domain.next_scan_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    statement = (
        update(Domain)
        .where(Domain.id == due.c.id)
        .values(
            next_scan_at=_hours_from_now(
                func.coalesce(Domain.scan_interval_hours, default_interval_hours)
            )
        )
        .returning(Domain)
        .execution_options(synchronize_session=False)
    )
    return (await session.execute(statement)).scalars().all()
