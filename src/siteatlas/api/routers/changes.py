"""The change feed: what was added, changed and removed, of all sites or of one.

Programs read pages, as JSON or JSON Lines, and may wait for the next event; feed readers get the
newest events as Atom.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID
from xml.sax.saxutils import escape, quoteattr

import orjson
from fastapi import APIRouter, Query, Request, Response, status
from pydantic import TypeAdapter

from siteatlas.access.identity import CurrentIdentity, Identity
from siteatlas.access.limits import READ
from siteatlas.api.context import Context
from siteatlas.api.middleware import entity_tag, is_known
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX, DomainName
from siteatlas.api.schemas.changes import AllAtomQuery, AllChangesQuery, AtomQuery, ChangesQuery
from siteatlas.catalog.change_feed import (
    ChangeView,
    FeedFilter,
    FeedHeadView,
    FeedPage,
    list_changes,
    read_head,
)
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.newest_changes import PublishedEvent, latest_changes
from siteatlas.storage.session import get_session

ATOM = "application/atom+xml"
JSON_LINES = "application/jsonl"
_events, _pages = TypeAdapter(ChangeView), TypeAdapter(FeedPage)
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class AtomFeed:
    """A feed of one site, or of all; `address` is where it was requested, `base` is its origin."""

    feed_id: UUID
    title: str
    name: str
    address: str
    base: str
    events: Sequence[PublishedEvent]
    is_complete: bool = True

    def document(self) -> bytes:
        """The Atom document."""
        # A feed without entries must have a time, too.
        never = datetime(1970, 1, 1, tzinfo=UTC)
        updated = max((found.published_at for found in self.events), default=never)
        incomplete = (
            "<subtitle>Incomplete: not all events could be read. "
            "The change feed contains all of them.</subtitle>"
        )
        lines = [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<feed xmlns="http://www.w3.org/2005/Atom">',
            f"<id>urn:siteatlas:{self.feed_id}:{_text(quote(self.name))}</id>",
            f"<title>{_text(self.title)}</title>",
            *([] if self.is_complete else [incomplete]),
            f"<updated>{_time(updated)}</updated>",
            "<author><name>Siteatlas</name></author>",
            _link("self", self.address, ATOM),
        ]
        for found in self.events:
            lines += self._entry(found.event, found.published_at)
        lines.append("</feed>\n")
        return "\n".join(lines).encode()

    def _entry(self, event: ChangeView, published_at: datetime) -> Iterator[str]:
        changes = f"{self.base}/api/v3/domains/{quote(event.domain)}/changes?after={event.seq - 1}"
        about = event.url or event.sitemap
        details = "\n".join(_details(event))
        yield "<entry>"
        yield f"<id>urn:siteatlas:{self.feed_id}:{_text(event.id)}</id>"
        yield f"<title>{_text(f'{event.kind}: {about or event.domain}')}</title>"
        yield f"<updated>{_time(published_at)}</updated>"
        yield f"<category term={quoteattr(event.kind)}/>"
        yield _link("alternate", about or changes)
        yield _link("related", changes, "application/json")
        yield f'<content type="text">{_text(details)}</content>'
        yield "</entry>"


def _details(event: ChangeView) -> Iterable[str]:
    yield f"Site: {event.domain}"
    if event.sitemap is not None:
        yield f"Sitemap: {event.sitemap}"
    if event.previous_sitemap is not None:
        yield f"Previous sitemap: {event.previous_sitemap}"
    for field in event.fields:
        before, after = (event.before or {}).get(field), (event.after or {}).get(field)
        yield f"{field}: {_shortened(before)} -> {_shortened(after)}"
    if event.evidence is not None:
        yield f"Evidence: {event.evidence}"


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _link(relation: str, address: str, media_type: str | None = None) -> str:
    kind = "" if media_type is None else f' type="{media_type}"'
    href = quoteattr(quote(address, safe="%/:?#[]@!$&'()*,;=+-._~"))
    return f'<link rel="{relation}"{kind} href={href}/>'


def _text(text: str) -> str:
    return escape(NOT_IN_XML.sub("\ufffd", text))


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_atom_responses: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The newest 100 events as an Atom feed, the last published first; a "
        "`subtitle` says if some of them may be missing.",
        "content": {ATOM: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "ETag": {
                "description": "Changes when something is published: send it as `If-None-Match`. "
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
    responses={**_atom_responses, **problems()},
)
async def get_changes_atom(query: Annotated[AllAtomQuery, Query()], request: Request) -> Response:
    """The newest events of all sites, for feed readers. Programs should read the change feed."""
    return await _atom_response(None, query, request, query.wanted_tag)


@router.get(
    f"{PREFIX}/{{domain}}/changes.atom",
    dependencies=[READ],
    summary="Read the newest changes of a site as an Atom feed",
    response_class=Response,
    responses={**_atom_responses, **problems(404)},
)
async def get_domain_changes_atom(
    domain: DomainName, query: Annotated[AtomQuery, Query()], request: Request
) -> Response:
    """The newest events of one site, for feed readers. Programs should read the change feed."""
    return await _atom_response(domain, query, request)


async def _atom_response(
    domain: str | None, query: AtomQuery, request: Request, tag: str | None = None
) -> Response:
    async with get_session(snapshot=True) as session:
        site = None if domain is None else await find_domain_view(session, domain)
        head = await read_head(session)
        # Which sites have a tag changes without anything published.
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
    return Response(feed.document(), headers=headers, media_type=ATOM)


def _feed_tag(head: FeedHeadView, request: Request) -> str:
    """The ETag of an Atom feed: it changes when something is published, of any site."""
    address = (request.base_url, request.url.path, request.url.query)
    return entity_tag(*address, head.feed_id, head.retained_from, head.seq)


_page_responses: dict[int | str, dict[str, Any]] = {
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


@router.get(
    "/api/v3/changes",
    dependencies=[READ],
    summary="Read the change feed",
    response_model=FeedPage,
    responses={**_page_responses, **problems(410)},
)
async def get_changes(
    query: Annotated[AllChangesQuery, Query()],
    request: Request,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
) -> FeedPage | Response:
    """What changed on all sites, in the order of their sequence numbers.

    Store `next_cursor` and continue with it. The same cursor returns the same events until they are
    no longer retained; then the response is 410 `cursor_expired`.
    """
    page = await _wait_for_events(None, query, context, identity, query.wanted_tag)
    return _page_response(page, request, response, query, query.wanted_tag)


@router.get(
    f"{PREFIX}/{{domain}}/changes",
    dependencies=[READ],
    summary="Read the change feed of a site",
    response_model=FeedPage,
    responses={**_page_responses, **problems(404, 410)},
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
    async with get_session(snapshot=True) as session:
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
    as_lines = query.format == "jsonl" or JSON_LINES in request.headers.get("accept", "")
    headers = {"Vary": "Accept"}
    # Which sites have a tag changes without anything published.
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
    parts = (request.url.path, request.url.query, page.feed_id, page.retained_from, page.to_seq)
    return entity_tag(*parts, as_lines)


def _json_lines(page: FeedPage) -> Iterator[bytes]:
    """The events of a page, one per line, and a last line that proves that none is missing."""
    for item in page.items:
        yield _events.dump_json(item) + b"\n"
    rest = _pages.dump_python(page, mode="json", exclude={"items"})
    yield orjson.dumps({"end": True, "count": len(page.items), **rest}) + b"\n"
