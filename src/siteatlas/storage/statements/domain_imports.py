"""Write statement that watches many sites at once. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Double,
    Text,
    Uuid,
    bindparam,
    case,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.net.address import WebAddress
from siteatlas.storage.models import Domain
from siteatlas.storage.statements.domains import (
    base_url_of,
    base_url_unless_watched_by_another,
    hours_from_now,
    watched_again,
)
from siteatlas.storage.tables import DOMAINS
from siteatlas.tags import MAX_TAGS

# A row that was inserted, not updated, has no version before it.
IS_NEW: Any = literal_column("domains.xmax = 0")
ALL_TAGS: Any = literal_column(
    "ARRAY(SELECT DISTINCT tag FROM unnest(domains.tags || excluded.tags) AS tag ORDER BY tag)"
)
# Tags contain no commas.
TAG_SEPARATOR = ","
COLUMNS = (
    "domain",
    "base_url",
    "created_by",
    "watched",
    "next_scan_at",
    "scan_interval_hours",
    "tags",
)


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
    rows = select(
        listed.domain,
        listed.base_url,
        bindparam("p_created_by", type_=Uuid()),
        literal(True),
        hours_from_now(func.coalesce(listed.hours, usual)),
        listed.hours,
        func.string_to_array(listed.tags, TAG_SEPARATOR),
    ).order_by(listed.domain)
    new = insert(DOMAINS).from_select(list(COLUMNS), rows)
    has_scheme = new.excluded.base_url.contains("://", autoescape=True)
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
            "tags": ALL_TAGS,
        },
        where=func.cardinality(ALL_TAGS) <= may_have,
    ).returning(Domain.id, Domain.domain, Domain.max_pages, IS_NEW.label("is_new"))


WATCH = _watch_statement()


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
    return [WatchedSite(*row) for row in await session.execute(WATCH, parameters)]
