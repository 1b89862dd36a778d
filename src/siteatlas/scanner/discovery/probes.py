"""The questions that discovery asks a site: its robots.txt, and a page that cannot exist.

Owns single requests and what their answers mean; the order of steps is `origin_search.py`'s.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from siteatlas.errors import (
    AddressError,
    EncodingUnsupported,
    GzipCorrupt,
    RateLimited,
    RedirectInvalid,
    RedirectLoop,
    RobotsUnreachable,
    ScanError,
    ServerError,
    Timeout,
    TooLarge,
    TooManyRedirects,
    Truncated,
)
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.discovery.robots import MAX_BYTES, AgentRules, Robots, parse_robots
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.reading.body import Body, BodyLimits
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.tally import Tally

ROBOTS_WIRE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """What came of asking for robots.txt; `address` is the one that answered, if any did.

    `rules` are those for our own user agent.
    """

    address: WebAddress
    status: int | None = None
    robots: Robots = field(default_factory=Robots)
    rules: AgentRules = field(default_factory=AgentRules)
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class RandomPathAnswer:
    """How the site answers for a page that cannot exist."""

    final_url: str | None = None
    answers_everything: bool = False
    type: SitemapType | None = None


async def fetch_robots(client: HttpClient, base: WebAddress, user_agent: str) -> RobotsAnswer:
    """Fetch and read robots.txt: 4xx means no rules, 5xx that the site must be left alone."""
    address = parse_url("/robots.txt", base.url)
    try:
        return await _fetch_robots_once(client, address, user_agent, accept_encoding="gzip")
    except EncodingUnsupported:
        return await _fetch_robots_once(client, address, user_agent, accept_encoding="identity")
    except (RedirectInvalid, RedirectLoop, TooManyRedirects):
        return RobotsAnswer(address)


async def _fetch_robots_once(
    client: HttpClient, address: WebAddress, user_agent: str, *, accept_encoding: str
) -> RobotsAnswer:
    async with client.get(
        address, max_bytes=ROBOTS_WIRE_BYTES, accept_encoding=accept_encoding
    ) as response:
        error = response.error()
        if isinstance(error, RateLimited):
            raise error
        if isinstance(error, ServerError):
            raise RobotsUnreachable(
                f"robots.txt cannot be read (status {response.status}), "
                "so the site must not be scanned now."
            )
        content = b"" if error else await _robots_content(response)
        robots = parse_robots(content)
        return RobotsAnswer(
            response.address,
            response.status,
            robots,
            robots.rules_of(user_agent),
            is_cut=len(content) > MAX_BYTES,
        )


async def _robots_content(response: Response) -> bytes:
    """The bytes of robots.txt: a large file is cut, a truncated one is an error."""
    content = bytearray()
    limits = BodyLimits(decoded_bytes=ROBOTS_WIRE_BYTES)
    body = Body(response.content_encoding, Tally(), limits)
    try:
        async for chunk in response.chunks():
            for piece in body.feed(chunk):
                content += piece
            if len(content) > MAX_BYTES:
                return bytes(content)
        for piece in body.close():
            content += piece
    except TooLarge:
        pass
    except (GzipCorrupt, Timeout, Truncated) as error:
        raise RobotsUnreachable(
            "robots.txt is truncated, so the site must not be scanned now."
        ) from error
    return bytes(content)


async def probe_random_path(client: HttpClient, base: WebAddress) -> RandomPathAnswer:
    """Ask for a page that cannot exist, to know what a page that is not there looks like."""
    address = parse_url(f"/{secrets.token_hex(8)}.xml", base.url)
    try:
        async with client.get(address) as response:
            if response.error() is not None:
                return RandomPathAnswer()
            moved = response.address.url != address.url
            final_url = response.address.url if moved else None
            return RandomPathAnswer(final_url, True, await _type_of(response))
    except (ScanError, AddressError):
        return RandomPathAnswer()


async def _type_of(response: Response) -> SitemapType | None:
    try:
        reader = DocumentReader(response.content_encoding, response.charset)
        async for chunk in response.chunks():
            for _ in reader.feed(chunk):
                if reader.type is not None:
                    return reader.type
        for _ in reader.close():
            pass
    except ScanError:
        return None
    return reader.type
