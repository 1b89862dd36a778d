"""One document: where it was found, how it was read, and what it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.insights.pages import Page
from siteatlas.insights.sitemap_history import recent_reads, url_counts
from siteatlas.insights.sitemap_tree import TreeNode, tree_children
from siteatlas.insights.sitemaps import find_sitemap
from siteatlas.insights.url_filters import UrlFilter
from siteatlas.insights.urls import list_sitemap_urls
from siteatlas.storage.session import AsyncSession
from siteatlas.web.context import ReadSession
from siteatlas.web.explanations import explain
from siteatlas.web.templating import next_href, render

ROWS = 50

router = APIRouter(include_in_schema=False)


@router.get("/sitemaps/{sitemap_id}", dependencies=[READ], response_class=HTMLResponse)
async def show_sitemap(
    request: Request,
    session: ReadSession,
    sitemap_id: UUID,
    contains: Annotated[str, Query(max_length=2048)] = "",
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
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
