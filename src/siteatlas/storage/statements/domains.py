"""Write statements on sites. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, case, func, literal, select, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.net.address import WebAddress
from siteatlas.storage.models import Domain
from siteatlas.tags import merged_tags

DEFAULT_INTERVAL_HOURS = 24.0
SECONDS_AN_HOUR = 3600.0


class Unset(Enum):
    """The sentinel for a setting that is not given; None sets it to the default."""

    UNSET = auto()


UNSET = Unset.UNSET
SCHEDULED = (Domain.watched, ~Domain.paused, Domain.deleted_at.is_(None))


async def find_domain(session: AsyncSession, domain: str, *, lock: bool = False) -> Domain | None:
    """The site of this name, unless it was deleted; with `lock`, its row is locked."""
    statement = select(Domain).where(Domain.domain == domain, Domain.deleted_at.is_(None))
    if lock:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    return (await session.execute(statement)).scalar_one_or_none()


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
    statement = REGISTER[watch, address.scheme_given]
    found = await session.execute(statement, values, execution_options={"populate_existing": True})
    domain = found.scalar_one()
    if tags:
        await _add_tags(session, domain, tags)
    return domain


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
        # Whoever watches a site that nobody watches becomes its owner.
        "created_by": case((Domain.watched, Domain.created_by), else_=row.excluded.created_by),
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


def hours_from_now(hours: ColumnElement[Any]) -> ColumnElement[datetime]:
    """SQL value: now plus the scan interval of a domain."""
    return func.now() + _scan_interval(hours)


def _scan_interval(hours: ColumnElement[Any]) -> ColumnElement[timedelta]:
    """The SQL interval that write statements add for the next scan of a domain."""
    return func.make_interval(0, 0, 0, 0, 0, 0, hours * SECONDS_AN_HOUR)


# By (watch, scheme_given).
REGISTER = {
    (watch, scheme_given): registration(watch=watch, scheme_given=scheme_given).returning(Domain)
    for watch, scheme_given in product((False, True), repeat=2)
}


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


async def _add_tags(session: AsyncSession, domain: Domain, tags: Sequence[str]) -> None:
    """Add tags to a registered site; its row is locked by the statement that registered it."""
    domain.tags = merged_tags(domain.tags, tags)
    await session.flush()
    await session.refresh(domain)


def _after_last_scan(hours: float) -> ColumnElement[datetime]:
    """One interval after the last scan, and not in the past."""
    last = func.coalesce(Domain.last_scan_at, func.now())
    return func.greatest(func.now(), last + _scan_interval(literal(hours)))


async def delete_domain(session: AsyncSession, domain: Domain) -> None:
    """Mark a site as deleted and free its name; its rows are removed later, in small batches."""
    domain.domain = tombstone(domain.id)
    domain.deleted_at = func.now()
    domain.watched = False
    domain.next_scan_at = None
    await session.flush()


def tombstone(domain_id: UUID) -> str:
    """The name of a deleted site; no host can have it, because hosts contain no `#`."""
    return f"#{domain_id}"


async def postpone_scan(session: AsyncSession, domain_id: UUID, seconds: float) -> None:
    """Make a watched site due again after `seconds`."""
    await session.execute(
        update(Domain)
        .where(Domain.id == domain_id, Domain.watched)
        .values(next_scan_at=func.now() + timedelta(seconds=seconds))
        .execution_options(synchronize_session=False)
    )


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


async def has_baseline(session: AsyncSession, domain_id: UUID) -> bool:
    """Whether a scan of a site was complete, so that changes after it are reported."""
    statement = select(Domain.baseline_scan_id).where(Domain.id == domain_id)
    return await session.scalar(statement) is not None
