"""Single requests of discovery and what they mean: robots.txt, and a page that cannot exist.

Also the origins that may serve a site, and which one to try after others failed. `site_scan.py`
owns the order of the steps.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from siteatlas.aio import fair_loop
from siteatlas.errors import (
    AddressError,
    ConnectionFailed,
    DnsError,
    EgressDenied,
    EncodingUnsupported,
    GzipCorrupt,
    HttpProtocolError,
    RateLimited,
    RedirectInvalid,
    RedirectLoop,
    RobotsUnreachable,
    ScanError,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
    TlsNotSpoken,
    TooLarge,
    TooManyRedirects,
    Truncated,
)
from siteatlas.net.address import WebAddress, bare_host, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.egress import read_ip
from siteatlas.net.response import Response
from siteatlas.scanner.discovery.robots import (
    MAX_BYTES,
    AgentRules,
    Robots,
    parse_robots,
    robots_text,
)
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.reading.decoding import Body, BodyLimits
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.entries import Tally

ROBOTS_WIRE_BYTES = 1024 * 1024
TRY_NEXT_ORIGIN_ERRORS = (
    ConnectionFailed,
    DnsError,
    EgressDenied,
    HttpProtocolError,
    Timeout,
    TlsError,
)


def candidate_origins(site: WebAddress) -> Iterator[WebAddress]:
    """The origins that may serve a site, the most likely first."""
    schemes = _origins_by_scheme(site)
    for origin in schemes:
        yield site.at("/") if origin == site.origin else parse_url(origin + "/")
    host = other_host(site.host)
    if host is not None:
        for origin in schemes:
            yield parse_url(origin.replace(site.host, host, 1) + "/")


def _origins_by_scheme(site: WebAddress) -> list[str]:
    fixed = site.scheme_given or (site.port_given and site.port == 443)
    if fixed:
        return [site.origin]
    return [site.origin, "http" + site.origin.removeprefix("https")]


def other_host(host: str) -> str | None:
    """The host with `www.` if it has none, without it if it has; None for addresses."""
    if "." not in host or read_ip(host) is not None:
        return None
    bare = bare_host(host)
    return bare if host != bare else "www." + bare


def is_worth_trying(origin: WebAddress, site: WebAddress, errors: Sequence[SiteatlasError]) -> bool:
    """Whether an origin may succeed after others failed with these errors.

    A certificate that cannot be trusted is never a reason to continue without TLS.
    """
    if origin.scheme != site.scheme and any(map(_is_untrusted_certificate, errors)):
        return False
    if origin.host != site.host:
        return any(isinstance(error, (ConnectionFailed, DnsError, TlsError)) for error in errors)
    return not any(isinstance(error, DnsError) for error in errors)


def _is_untrusted_certificate(error: SiteatlasError) -> bool:
    return isinstance(error, TlsError) and not isinstance(error, TlsNotSpoken)


@dataclass(frozen=True, slots=True)
class RobotsResult:
    """The result of requesting robots.txt; `address` is the final one, if there was a response.

    `rules` are those for our own user agent; `text` is None if there is no robots.txt.
    """

    address: WebAddress
    status: int | None = None
    robots: Robots = field(default_factory=Robots)
    rules: AgentRules = field(default_factory=AgentRules)
    is_truncated: bool = False
    text: str | None = None


async def fetch_robots(client: HttpClient, base: WebAddress) -> RobotsResult:
    """Fetch and parse robots.txt: 4xx means no rules, 5xx that the site must not be scanned."""
    address = base.at("/robots.txt")
    try:
        return await _fetch_robots_once(client, address, accept_encoding="gzip")
    except EncodingUnsupported:
        return await _fetch_robots_once(client, address, accept_encoding="identity")
    except (RedirectInvalid, RedirectLoop, TooManyRedirects):
        return RobotsResult(address)


async def _fetch_robots_once(
    client: HttpClient, address: WebAddress, *, accept_encoding: str
) -> RobotsResult:
    async with client.get(
        address, max_bytes=ROBOTS_WIRE_BYTES, accept_encoding=accept_encoding
    ) as response:
        _check_robots_status(response)
        error = response.error()
        content = b"" if error else await _robots_content(response)
        robots, rules, text = await _read_robots(content, client.user_agent)
        return RobotsResult(
            response.address,
            response.status,
            robots,
            rules,
            is_truncated=len(content) > MAX_BYTES,
            text=None if error else text,
        )


def _check_robots_status(response: Response) -> None:
    """Raise if the status of robots.txt stops the scan, whether or not it is a challenge."""
    error = response.status_error()
    if isinstance(error, RateLimited):
        raise error
    if isinstance(error, ServerError):
        raise RobotsUnreachable(
            f"robots.txt cannot be read (status {response.status}), "
            "so the site must not be scanned now."
        )


async def _robots_content(response: Response) -> bytes:
    content = bytearray()
    limits = BodyLimits(decoded_bytes=ROBOTS_WIRE_BYTES)
    body = Body(response.content_encoding, Tally(), limits)
    try:
        async for chunk in response.chunks():
            for decoded in body.feed(chunk):
                content += decoded
            if len(content) > MAX_BYTES:
                return bytes(content)
        for decoded in body.close():
            content += decoded
    except TooLarge:
        pass
    except (GzipCorrupt, Timeout, Truncated) as error:
        raise RobotsUnreachable(
            "robots.txt is truncated, so the site must not be scanned now."
        ) from error
    return bytes(content)


async def _read_robots(content: bytes, user_agent: str) -> tuple[Robots, AgentRules, str]:
    """Read a robots.txt; a long one in a thread, which lets the event loop continue."""

    def read() -> tuple[Robots, AgentRules, str]:
        robots = parse_robots(content)
        return robots, robots.rules_for(user_agent), robots_text(content)

    # A longer robots.txt takes more than a few milliseconds.
    return read() if len(content) <= 8 * 1024 else await asyncio.to_thread(read)


@dataclass(frozen=True, slots=True)
class RandomPathResult:
    """The response of a site for a page that cannot exist."""

    final_url: str | None = None
    accepts_any_path: bool = False
    type: SitemapType | None = None


async def probe_random_path(client: HttpClient, base: WebAddress) -> RandomPathResult:
    """Request a page that cannot exist, to recognise the responses for missing pages."""
    address = base.at(f"/{secrets.token_hex(8)}.xml")
    try:
        async with client.get(address) as response:
            if response.error() is not None:
                return RandomPathResult()
            moved = response.address.url != address.url
            final_url = response.address.url if moved else None
            return RandomPathResult(final_url, True, await _random_path_type(response))
    except (ScanError, AddressError):
        return RandomPathResult()


async def _random_path_type(response: Response) -> SitemapType | None:
    try:
        reader = DocumentReader(response.content_encoding, response.charset)
        async for chunk in response.chunks():
            async for _ in fair_loop().time_slices(reader.feed(chunk)):
                if reader.type is not None:
                    return reader.type
        async for _ in fair_loop().time_slices(reader.close()):
            pass
    except ScanError:
        return None
    return reader.type
