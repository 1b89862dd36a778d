"""The change feed: what was added, changed and removed, of all sites or of one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response, status

from siteatlas.access.identity import CurrentIdentity, Identity
from siteatlas.access.marks import READ
from siteatlas.api.context import Context
from siteatlas.api.entity_tags import entity_tag, is_known
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX, DomainName
from siteatlas.api.schemas.changes import AllChangesQuery, ChangesQuery, FeedPageAnswer
from siteatlas.insights.change_views import FeedPage
from siteatlas.insights.changes import list_changes
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.storage.session import get_snapshot_session

JSON_LINES = "application/jsonl"
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One page of events, as JSON or as JSON lines.",
        "content": {JSON_LINES: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "ETag": {
                "description": "On a page at the head: send it as `If-None-Match`.",
                "schema": {"type": "string", "maxLength": 64},
            }
        },
    },
    304: {"description": "Nothing was published since the page with this `ETag`."},
}

router = APIRouter(tags=["changes"])


@router.get(
    "/api/v3/changes",
    dependencies=[READ],
    summary="Read the change feed",
    response_model=FeedPageAnswer,
    responses={**DESCRIBED, **problems(410)},
)
async def get_changes(
    query: Annotated[AllChangesQuery, Query()],
    request: Request,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
) -> FeedPage | Response:
    """What changed on all sites, in the order of publication.

    Store `next_cursor` and continue with it. The same cursor returns the same events until they are
    no longer retained; then the response is 410 `cursor_expired`.
    """
    page = await _wait_for_events(None, query, context, identity, query.wanted_tag)
    return _page_response(page, request, response, query, query.wanted_tag)


@router.get(
    f"{PREFIX}/{{domain}}/changes",
    dependencies=[READ],
    summary="Read the change feed of a site",
    response_model=FeedPageAnswer,
    responses={**DESCRIBED, **problems(404, 410)},
)
async def get_domain_changes(
    domain: DomainName,
    query: Annotated[ChangesQuery, Query()],
    request: Request,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
) -> FeedPage | Response:
    """What changed on one site. Numbers and cursors are those of the feed of all sites."""
    page = await _wait_for_events(domain, query, context, identity)
    return _page_response(page, request, response, query)


async def _wait_for_events(
    domain: str | None,
    query: ChangesQuery,
    context: Context,
    identity: Identity,
    tag: str | None = None,
) -> FeedPage:
    """The requested page; if it is empty, wait as long as requested for one that is not."""
    page = await _read_page(domain, query, tag, after=query.after, cursor=query.cursor)
    deadline, holder = time.monotonic() + query.wait, identity.quota_user_id
    while not page.items and page.at_head:
        left = deadline - time.monotonic()
        if left <= 0 or not await context.feed.wait_beyond(page.to_seq, left, holder):
            break
        later = await _read_page(domain, query, tag, cursor=page.next_cursor)
        page = replace(later, from_seq=page.from_seq)
    return page


async def _read_page(
    domain: str | None,
    query: ChangesQuery,
    tag: str | None,
    *,
    after: int | None = None,
    cursor: str | None,
) -> FeedPage:
    """Read one page of the feed in one snapshot; no connection is held afterwards."""
    async with get_snapshot_session() as session:
        site = None if domain is None else await find_domain_view(session, domain)
        wanted = FeedFilter(None if site is None else site.id, query.wanted_kinds, tag)
        return await list_changes(session, wanted, after=after, cursor=cursor, limit=query.limit)


def _page_response(
    page: FeedPage,
    request: Request,
    response: Response,
    query: ChangesQuery,
    tag: str | None = None,
) -> FeedPage | Response:
    """The page in the requested format; 304 if the client has it."""
    as_lines = query.format == "jsonl" or JSON_LINES in request.headers.get("accept", "")
    headers = {"Vary": "Accept"}
    # Which sites have a tag changes without a publication.
    if page.at_head and tag is None:
        headers["ETag"] = _page_tag(page, request, as_lines=as_lines)
        if is_known(headers["ETag"], request.headers.get("if-none-match")):
            return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    if as_lines:
        content = b"".join(_json_lines(page))
        return Response(content, headers=headers, media_type=JSON_LINES)
    response.headers.update(headers)
    return page


def _page_tag(page: FeedPage, request: Request, *, as_lines: bool) -> str:
    """The ETag of a page at the head: it changes with the next publication."""
    parts = (request.url.path, request.url.query, page.feed_id, page.retained_from, page.to_seq)
    return entity_tag(*parts, as_lines)


def _json_lines(page: FeedPage) -> Iterator[bytes]:
    """The events of a page, one per line, and a last line that proves that none is missing."""
    answer = FeedPageAnswer.model_validate(page)
    for item in answer.items:
        yield item.model_dump_json().encode() + b"\n"
    rest = answer.model_dump(mode="json", exclude={"items"})
    yield orjson.dumps({"end": True, "count": len(answer.items), **rest}) + b"\n"
