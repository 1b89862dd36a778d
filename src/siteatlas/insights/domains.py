"""Read statements for domains."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from sqlalchemy import ColumnElement, func
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import DomainNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size, text_key
from siteatlas.insights.tagged_domains import has_tag
from siteatlas.insights.views import select_view
from siteatlas.net.address import parse_site
from siteatlas.storage.models import Domain, LastScanStatus, User
from siteatlas.storage.statements.domains import find_domain


class DomainState(StrEnum):
    """Which sites to show; `attention`: a failed or partial last scan, or held removals."""

    WATCHED = "watched"
    PAUSED = "paused"
    FAILING = "failing"
    ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class DomainView:
    """A site as others see it. Its counters are as of its last published scan.

    `missing_count` of the listed URLs are missing from their sitemaps without proof of removal.
    """

    id: UUID
    domain: str
    origin: str | None
    base_url: str
    watched: bool
    paused: bool
    scan_interval_hours: float | None
    next_scan_at: datetime | None
    max_pages: int | None
    last_scan_at: datetime | None
    last_scan_status: LastScanStatus | None
    last_error_code: str | None
    failures_in_a_row: int
    url_count: int
    distinct_url_count: int
    sitemap_count: int
    missing_count: int
    removals_held_since: datetime | None
    last_published_seq: int | None
    tags: list[str]
    created_by: UUID
    created_at: datetime
    updated_at: datetime


async def find_domain_view(session: AsyncSession, name: str) -> DomainView:
    """The site that a person names, with or without scheme and `www.`."""
    domain = await find_domain(session, parse_site(name).domain)
    if domain is None:
        raise DomainNotFound
    return domain_view(domain)


async def find_creator(session: AsyncSession, domain: DomainView) -> str | None:
    """The name of the user who created a site; None if there is no such user any more."""
    user = await session.get(User, domain.created_by)
    return user.name if user is not None else None


async def list_domains(
    session: AsyncSession,
    *,
    watched: bool | None = None,
    state: DomainState | None = None,
    contains: str | None = None,
    tag: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[DomainView]:
    """Sites by name; `contains` is a part of the host."""
    scope = CursorScope("domains", (watched, state and state.value, contains, tag))
    after = scope.read(cursor, text_key)
    size = page_size(limit)
    statement = select_view(DomainView, Domain).where(Domain.deleted_at.is_(None))
    if watched is not None:
        statement = statement.where(Domain.watched.is_(watched))
    if state is not None:
        statement = statement.where(_in_state(state))
    if contains:
        statement = statement.where(func.strpos(Domain.domain, contains.lower()) > 0)
    if tag is not None:
        statement = statement.where(has_tag(tag))
    if after is not None:
        statement = statement.where(Domain.domain > after)
    statement = statement.order_by(Domain.domain)
    return await read_page(
        session, statement, size, DomainView, lambda row: scope.write(row.domain)
    )


def domain_view(domain: Domain) -> DomainView:
    """The view of a row that was already read."""
    return DomainView(*(getattr(domain, field.name) for field in fields(DomainView)))


def _in_state(state: DomainState) -> ColumnElement[bool]:
    """SQL condition: a site is in a state that the list is filtered by."""
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
