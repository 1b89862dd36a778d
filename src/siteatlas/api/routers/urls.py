"""Search over the stored URLs of all sites."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from siteatlas.access.marks import READ
from siteatlas.api.openapi import problems
from siteatlas.api.schemas.urls import AllUrlsQuery, UrlPageAnswer
from siteatlas.api.sessions import ReadSession
from siteatlas.insights.urls import UrlPage, search_urls

router = APIRouter(prefix="/api/v3/urls", tags=["urls"])


@router.get(
    "",
    summary="Search the URLs of all sites",
    response_model=UrlPageAnswer,
    responses=problems(),
    dependencies=[READ],
)
async def get_urls(query: Annotated[AllUrlsQuery, Query()], session: ReadSession) -> UrlPage:
    """The stored URLs of all sites, sitemap by sitemap."""
    return await search_urls(
        session, query.wanted, tag=query.wanted_tag, limit=query.limit, cursor=query.cursor
    )
