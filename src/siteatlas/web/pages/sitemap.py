"""One document: where it was found, how it was read, and what it lists."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.insights.sitemap_tree import tree_children
from siteatlas.insights.sitemaps import find_sitemap
from siteatlas.insights.url_filters import UrlFilter
from siteatlas.insights.urls import list_sitemap_urls
from siteatlas.web.context import ReadSession
from siteatlas.web.explanations import explain
from siteatlas.web.templating import render

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
    page = await list_sitemap_urls(
        session, sitemap_id, UrlFilter(contains.strip() or None), limit=ROWS, cursor=cursor
    )
    kept = {"contains": contains, "cursor": page.next_cursor}
    return render(
        request,
        "sitemap.html",
        sitemap=sitemap,
        page=page,
        contains=contains,
        explanation=explain(sitemap.error_code),
        children=await tree_children(session, sitemap_id) if sitemap.type == "index" else None,
        next_href=f"/sitemaps/{sitemap_id}?{urlencode(kept)}" if page.next_cursor else None,
    )


@router.get("/sitemaps/{sitemap_id}/children", dependencies=[READ], response_class=HTMLResponse)
async def show_children(request: Request, session: ReadSession, sitemap_id: UUID) -> HTMLResponse:
    """The children of an index as a part of the tree."""
    page = await tree_children(session, sitemap_id)
    return render(request, "parts/children.html", page=page)
