"""Removing URLs whose absence is proved: their rows, their changes, the counts of their documents.

What is removed, and on which evidence, is decided in `processor.removals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Text,
    Update,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import CTE

from siteatlas.storage.models import ChangeKind, RemovalEvidence
from siteatlas.storage.statements.url_changes import insert_departures, listed_state
from siteatlas.storage.tables import SITEMAP_URLS, SITEMAPS, URL_CHANGES

URLS_PER_BATCH = 5_000
GROUPS_PER_BATCH = 200
_SCAN = bindparam("of_scan", type_=BigInteger())


@dataclass(frozen=True, slots=True)
class Removal:
    """URLs of a document to remove: those missing since a scan, or all of a document (None).

    They vanished between `not_before` and `not_after`.
    """

    sitemap_id: UUID
    missing_scan_id: int | None
    evidence: RemovalEvidence
    not_before: datetime | None = None
    not_after: datetime | None = None


def removed_rows_counted(removed: CTE) -> Update:
    """Subtract removed rows from the counts of their documents; `removed` has their ids.

    `was_missing` says whether a row was missing; without it, all were.
    """
    missing: ColumnElement[int] = func.count()
    if "was_missing" in removed.c:
        missing = func.count().filter(removed.c.was_missing)
    counts = (
        select(removed.c.sitemap_id, func.count().label("urls"), missing.label("missing"))
        .group_by(removed.c.sitemap_id)
        .subquery("counts")
    )
    return (
        update(SITEMAPS)
        .where(SITEMAPS.c.id == counts.c.sitemap_id)
        .values(
            url_count=func.greatest(SITEMAPS.c.url_count - counts.c.urls, 0),
            missing_count=func.greatest(SITEMAPS.c.missing_count - counts.c.missing, 0),
        )
    )


def _groups(*, whole_documents: bool) -> CTE:
    """The groups of URLs to remove, from parameters."""
    columns: dict[str, Any] = {
        "sitemap_id": Uuid(),
        "missing_scan_id": BigInteger(),
        "evidence": Text(),
        "not_before": DateTime(timezone=True),
        "not_after": DateTime(timezone=True),
    }
    if whole_documents:
        del columns["missing_scan_id"]
    arrays = [bindparam(f"p_{name}", type_=ARRAY(type_)) for name, type_ in columns.items()]
    rows = func.unnest(*arrays).table_valued(*columns, name="wanted").render_derived()
    return select(rows).cte("groups")


def _removal(*, whole_documents: bool) -> Any:
    """Remove a batch of the URLs of some groups; returns the number of URLs."""
    groups = _groups(whole_documents=whole_documents)
    urls = SITEMAP_URLS
    of_group = urls.c.sitemap_id == groups.c.sitemap_id
    if not whole_documents:
        of_group = and_(of_group, urls.c.missing_scan_id == groups.c.missing_scan_id)
    picked = (
        select(
            urls.c.sitemap_id,
            urls.c.url_hash,
            urls.c.missing_scan_id.is_not(None).label("was_missing"),
            groups.c.evidence,
            groups.c.not_before,
            groups.c.not_after,
        )
        .join(urls, of_group)
        .where(urls.c.removed_at.is_(None))
        .limit(URLS_PER_BATCH)
        .with_for_update(of=urls)
        .cte("picked")
    )
    removed = (
        update(urls)
        .where(urls.c.sitemap_id == picked.c.sitemap_id, urls.c.url_hash == picked.c.url_hash)
        .values(removed_at=func.now(), missing_scan_id=None)
        .returning(
            urls.c.sitemap_id,
            urls.c.url_hash,
            urls.c.url,
            listed_state(urls.c).label("before"),
            picked.c.was_missing,
            picked.c.evidence,
            picked.c.not_before,
            picked.c.not_after,
        )
        .cte("removed")
    )
    return (
        select(func.count())
        .select_from(removed)
        .add_cte(
            _told(removed).cte("told"),
            _told_of_origins(removed).cte("told_of_origins"),
            removed_rows_counted(removed).cte("counted"),
        )
    )


def _told(removed: CTE) -> Any:
    """The changes of removed rows, unless the scan is silent.

    An earlier change of the entry in this scan gives the state before, unless that is the state in
    another document, see `_told_of_origins`.
    """
    rows = select(
        _SCAN.label("scan_id"),
        removed.c.sitemap_id,
        removed.c.url_hash,
        literal(ChangeKind.REMOVED, URL_CHANGES.c.kind.type).label("kind"),
        removed.c.url,
        removed.c.before,
        removed.c.evidence,
        removed.c.not_before,
        removed.c.not_after,
    ).where(~bindparam("is_silent", type_=Boolean()))
    names = [column.name for column in rows.selected_columns]
    told = insert(URL_CHANGES).from_select(names, rows)
    return told.on_conflict_do_update(
        index_elements=[URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash],
        set_={
            "kind": told.excluded.kind,
            "before": case(
                (URL_CHANGES.c.kind == ChangeKind.MOVED, cast(null(), JSONB())),
                else_=URL_CHANGES.c.before,
            ),
            "after": null(),
            "previous_sitemap_id": null(),
            "evidence": told.excluded.evidence,
            "not_after": told.excluded.not_after,
        },
    ).returning(URL_CHANGES.c.scan_id)


def _told_of_origins(removed: CTE) -> Any:
    """The departures of removed URLs from the documents that they moved from in this scan.

    The move is no longer reported: for readers of the feed, the URL leaves the document it was in.
    """
    move = URL_CHANGES.alias("move")
    moves = (
        select(*(column for column in move.c if column.name not in ("not_after", "evidence")))
        .add_columns(removed.c.not_after, removed.c.evidence)
        .where(
            move.c.scan_id == _SCAN,
            move.c.sitemap_id == removed.c.sitemap_id,
            move.c.url_hash == removed.c.url_hash,
            move.c.kind == ChangeKind.MOVED,
        )
        .subquery("moves")
    )
    return insert_departures(moves, moves.c.evidence).returning(URL_CHANGES.c.scan_id)


REMOVE_MISSING = _removal(whole_documents=False)
REMOVE_DOCUMENTS = _removal(whole_documents=True)
# Else the document, when it comes back as it was, would be unchanged and its URLs stay removed.
FORGET_CONTENT = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(etag=None, last_modified=None, content_hash=None)
)


async def remove_urls(
    session: AsyncSession, scan_id: int, removals: Sequence[Removal], *, silent: bool
) -> bool:
    """Remove a batch of URLs of these groups; False when none are left.

    `removals` are at most `GROUPS_PER_BATCH`, all of missing URLs or all of whole documents.
    `silent`: the feed does not tell, because the site has no baseline yet.
    """
    whole = removals[0].missing_scan_id is None
    values: dict[str, Any] = {
        "of_scan": scan_id,
        "is_silent": silent,
        "p_sitemap_id": [removal.sitemap_id for removal in removals],
        "p_evidence": [removal.evidence.value for removal in removals],
        "p_not_before": [removal.not_before for removal in removals],
        "p_not_after": [removal.not_after for removal in removals],
    }
    if whole:
        await session.execute(FORGET_CONTENT, {"ids": values["p_sitemap_id"]})
    else:
        values["p_missing_scan_id"] = [removal.missing_scan_id for removal in removals]
    statement = REMOVE_DOCUMENTS if whole else REMOVE_MISSING
    return bool(await session.scalar(statement, values))
