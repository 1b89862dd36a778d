"""The newest events of the change feed for feed readers, of all sites or of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, status

from siteatlas.access.marks import READ
from siteatlas.api.atom import MEDIA_TYPE, AtomFeed
from siteatlas.api.entity_tags import entity_tag, is_known
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX, DomainName
from siteatlas.api.schemas.changes import AllAtomQuery, AtomQuery
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.feed_positions import FeedHeadView, read_head
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.insights.latest_changes import latest_changes
from siteatlas.storage.session import get_snapshot_session

DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The newest 100 events as an Atom feed, newest publication first; a "
        "`subtitle` says if some of them may be missing.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "ETag": {
                "description": "Changes with the next publication: send it as `If-None-Match`. "
                "Not set if `tag` is given.",
                "schema": {"type": "string", "maxLength": 64},
            }
        },
    },
    304: {"description": "Nothing was published since the feed with this `ETag`."},
}

router = APIRouter(tags=["changes"])


@router.get(
    "/api/v3/changes.atom",
    dependencies=[READ],
    summary="Read the newest changes as an Atom feed",
    response_class=Response,
    responses={**DESCRIBED, **problems()},
)
async def get_changes_atom(query: Annotated[AllAtomQuery, Query()], request: Request) -> Response:
    """The newest events of all sites, for feed readers. Programs should read the change feed."""
    return await _atom_response(None, query, request, query.wanted_tag)


@router.get(
    f"{PREFIX}/{{domain}}/changes.atom",
    dependencies=[READ],
    summary="Read the newest changes of a site as an Atom feed",
    response_class=Response,
    responses={**DESCRIBED, **problems(404)},
)
async def get_domain_changes_atom(
    domain: DomainName, query: Annotated[AtomQuery, Query()], request: Request
) -> Response:
    """The newest events of one site, for feed readers. Programs should read the change feed."""
    return await _atom_response(domain, query, request)


async def _atom_response(
    domain: str | None, query: AtomQuery, request: Request, tag: str | None = None
) -> Response:
    """The Atom feed; 304, without reading an event, if nothing was published since."""
    async with get_snapshot_session() as session:
        site = None if domain is None else await find_domain_view(session, domain)
        head = await read_head(session)
        # Which sites have a tag changes without a publication.
        headers = {} if tag is not None else {"ETag": _feed_tag(head, request)}
        if headers and is_known(headers["ETag"], request.headers.get("if-none-match")):
            return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
        wanted = FeedFilter(None if site is None else site.id, query.wanted_kinds, tag)
        latest = await latest_changes(session, wanted, head)
    feed = AtomFeed(
        feed_id=head.feed_id,
        title="Changes of all sites" if site is None else f"Changes of {site.domain}",
        name="changes" if site is None else f"changes:{site.domain}",
        address=str(request.url),
        base=str(request.base_url).rstrip("/"),
        events=latest.events,
        is_complete=latest.is_complete,
    )
    return Response(feed.document(), headers=headers, media_type=MEDIA_TYPE)


def _feed_tag(head: FeedHeadView, request: Request) -> str:
    """The ETag of an Atom feed: it changes with the next publication, of any site."""
    address = (request.base_url, request.url.path, request.url.query)
    return entity_tag(*address, head.feed_id, head.retained_from, head.seq)
