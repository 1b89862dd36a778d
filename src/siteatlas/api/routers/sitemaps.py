"""Single sitemap documents."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from siteatlas.access.marks import READ
from siteatlas.api.openapi import problems
from siteatlas.api.schemas.sitemaps import SitemapAnswer
from siteatlas.api.schemas.urls import UrlPageAnswer, UrlsQuery
from siteatlas.api.sessions import ReadSession
from siteatlas.insights.sitemaps import SitemapView, find_sitemap
from siteatlas.insights.urls import UrlPage, list_sitemap_urls

router = APIRouter(prefix="/api/v3/sitemaps", tags=["sitemaps"])


@router.get(
    "/{sitemap_id}",
    dependencies=[READ],
    summary="Show a sitemap",
    response_model=SitemapAnswer,
    responses=problems(404),
)
async def get_sitemap(sitemap_id: UUID, session: ReadSession) -> SitemapView:
    """What is stored about one sitemap."""
    return await find_sitemap(session, sitemap_id)


@router.get(
    "/{sitemap_id}/urls",
    dependencies=[READ],
    summary="List the URLs of a sitemap",
    response_model=UrlPageAnswer,
    responses=problems(404),
)
async def get_sitemap_urls(
    sitemap_id: UUID, query: Annotated[UrlsQuery, Query()], session: ReadSession
) -> UrlPage:
    """The stored URLs of one sitemap."""
    sitemap = await find_sitemap(session, sitemap_id)
    return await list_sitemap_urls(
        session, sitemap.id, query.wanted, limit=query.limit, cursor=query.cursor
    )
