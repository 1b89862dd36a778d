"""URLs: the search for them on all sites, those of a document, and the history of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.limits import FILTERED, READ
from siteatlas.catalog.change_feed import FIELDS, ChangeView
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.findings import FindingFilter, list_findings
from siteatlas.catalog.paging import Page
from siteatlas.catalog.sitemaps import (
    TreeNode,
    find_sitemap,
    recent_reads,
    tree_children,
    url_counts,
)
from siteatlas.catalog.url_lists import (
    UrlFilter,
    UrlView,
    list_sitemap_urls,
    list_url_history,
    search_urls,
)
from siteatlas.scanner.reading.entries import MAX_URL_CHARS
from siteatlas.storage.session import AsyncSession, get_session
from siteatlas.text import MAX_TAG_CHARS
from siteatlas.web.context import NO_NUL, Cursor, ReadSession
from siteatlas.web.templating import NOTHING, exact, explain, next_href, render

ROWS = 50
# The bounds of one search for URLs of all sites; the next page goes on from there.
SEARCH_SECONDS = 2.0
MAX_SEARCHED = 1_000_000

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ListedValue:
    """What a sitemap listed for a URL under one name, before and after a change."""

    name: str
    before: str
    after: str


@router.get("/domains/{domain}/url", dependencies=[READ], response_class=HTMLResponse)
async def show_url(
    request: Request,
    session: ReadSession,
    domain: Annotated[str, Path(max_length=2048)],
    url: Annotated[str, Query(min_length=1, max_length=MAX_URL_CHARS, pattern=NO_NUL)],
    cursor: Cursor = None,
) -> HTMLResponse:
    """One page of the changes of a URL, newest first; the first one with its sitemaps."""
    site = await find_domain_view(session, domain)
    page = await list_url_history(session, site.id, url, limit=ROWS, cursor=cursor)
    return render(
        request,
        "url.html",
        site=site,
        url=url,
        page=page,
        values={change.id: listed_values(change) for change in page.items},
        first_seen=min((entry.first_seen_at for entry in page.entries), default=None),
        listed=[entry for entry in page.entries if entry.removed_at is None],
        is_first_page=cursor is None,
        next_href=next_href(f"/domains/{site.domain}/url", page.next_cursor, {"url": url}),
    )


def listed_values(change: ChangeView) -> list[ListedValue]:
    """The values that differ, or if an entry came or went, all that are listed for it."""
    before, after = change.before or {}, change.after or {}
    names = change.fields or [name for name in FIELDS if name in before or name in after]
    return [ListedValue(name, _shown(before, name), _shown(after, name)) for name in names]


def _shown(state: dict[str, Any], name: str) -> str:
    value = state.get("lastmod_text") if name == "lastmod" else None
    value = state.get(name) if value is None else value
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return exact(value)
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


@router.get("/urls", dependencies=[READ, FILTERED], response_class=HTMLResponse)
async def find_urls(
    request: Request,
    contains: Annotated[str, Query(max_length=500, pattern=NO_NUL)] = "",
    tag: Annotated[str, Query(max_length=MAX_TAG_CHARS, pattern=NO_NUL)] = "",
    q: Annotated[str, Query(max_length=500, pattern=NO_NUL)] = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """URLs of all sites that contain a text: what is found in a limited time among limited rows."""
    kept = {"contains": contains.strip() or q.strip(), "tag": tag.strip().lower()}
    found, examined, until = list[UrlView](), 0, time.monotonic() + SEARCH_SECONDS
    while kept["contains"]:
        async with get_session() as session, session.begin():
            wanted, room = UrlFilter(kept["contains"]), ROWS - len(found)
            page = await search_urls(
                session, wanted, tag=kept["tag"] or None, limit=room, cursor=cursor
            )
        found, examined, cursor = (
            found + page.items,
            examined + (page.examined or 0),
            page.next_cursor,
        )
        is_over = time.monotonic() >= until or examined >= MAX_SEARCHED
        if cursor is None or len(found) >= ROWS or is_over:
            break
    return render(
        request,
        "urls.html",
        found=found,
        examined=examined,
        kept=kept,
        next_href=next_href("/urls", cursor, kept) if kept["contains"] else None,
    )


@router.get("/sitemaps/{sitemap_id}", dependencies=[READ, FILTERED], response_class=HTMLResponse)
async def show_sitemap(
    request: Request,
    session: ReadSession,
    sitemap_id: UUID,
    contains: Annotated[str, Query(max_length=2048)] = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """A document with its URLs, or with its children if it is an index."""
    sitemap = await find_sitemap(session, sitemap_id)
    is_index = sitemap.type == "index"
    page = await list_sitemap_urls(
        session,
        sitemap_id,
        UrlFilter(contains.strip() or None),
        limit=ROWS,
        cursor=None if is_index else cursor,
    )
    children = await tree_children(session, sitemap_id, cursor=cursor) if is_index else None
    reads = (await recent_reads(session, [sitemap_id]))[sitemap_id]
    findings = await list_findings(session, sitemap.domain_id, FindingFilter(sitemap=sitemap.url))
    return render(
        request,
        "sitemap.html",
        sitemap=sitemap,
        page=page,
        contains=contains,
        explanation=explain(sitemap.error_code),
        children=children,
        trends=await url_trends(session, [children] if children else []),
        reads=reads,
        findings=findings.items,
        counts=url_counts(reads),
        next_href=next_href(f"/sitemaps/{sitemap_id}", page.next_cursor, {"contains": contains}),
    )


@router.get("/sitemaps/{sitemap_id}/children", dependencies=[READ], response_class=HTMLResponse)
async def show_children(
    request: Request,
    session: ReadSession,
    sitemap_id: UUID,
    total: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> HTMLResponse:
    """The children of an index as a part of the tree; `total` is the number of URLs of the site."""
    await find_sitemap(session, sitemap_id)
    page = await tree_children(session, sitemap_id)
    trends = await url_trends(session, [page])
    return render(
        request, "parts/children.html", page=page, total=total, parent=sitemap_id, trends=trends
    )


async def url_trends(
    session: AsyncSession, pages: Sequence[Page[TreeNode]]
) -> dict[UUID, list[int]]:
    """How many URLs the lists of pages of a tree had after their last reads."""
    leaves = {node.id for page in pages for node in page.items if not node.child_count}
    reads = await recent_reads(session, list(leaves))
    return {sitemap_id: url_counts(of_one) for sitemap_id, of_one in reads.items()}
