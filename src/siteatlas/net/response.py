"""A response, and reading its body within limits of time, speed and size.

Returns the bytes as received; the scanner decompresses them.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp
from aiohttp.http_exceptions import (
    ContentLengthError,
    HttpProcessingError,
    TransferEncodingError,
)

from siteatlas.errors import (
    Blocked,
    ConnectionFailed,
    DnsError,
    EmptyDocument,
    HttpNotFound,
    HttpProtocolError,
    HttpStatusUnexpected,
    PaymentRequired,
    ProxyFailed,
    RateLimited,
    ScanError,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
    TlsNotSpoken,
    TooLarge,
    TooSlow,
    Truncated,
)
from siteatlas.net.address import WebAddress
from siteatlas.text import clean_text, truncated

# Longer waits that a site asks for are left to the caller.
MAX_RETRY_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Seconds, bytes and counts; tests use smaller ones.

    `document` is the time spent on the network for one document over all redirects and tries; the
    time that politeness or the reader takes does not count. Slower
    than `lowest_speed` bytes a second over any `speed_window` seconds is too slow. A site that asks
    us to come back within `max_retry_after` seconds is waited for; longer waits are the caller's.
    """

    dns: float = 5.0
    connect: float = 10.0
    first_byte: float = 30.0
    idle: float = 20.0
    document: float = 180.0
    max_bytes: int = 100 * 1024 * 1024
    header_bytes: int = 64 * 1024
    redirects: int = 5
    lowest_speed: float = 1024.0
    speed_window: float = 30.0
    tries: int = 3
    retry_delay: float = 0.5
    max_retry_after: float = MAX_RETRY_WAIT_SECONDS
    dns_cache: float = 60.0


Fault = TypeVar("Fault", bound=BaseException)

MAX_RETRY_AFTER_SECONDS = 3600.0

# What aiohttp, its dependencies and the standard library raise for a failed request.
LIBRARY_FAULTS = (
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    ValueError,
)


def map_exception(error: BaseException) -> SiteatlasError:
    """The ScanError for an exception of aiohttp or the network during a request."""
    ours = _find_cause(error, SiteatlasError)
    if ours is not None:
        return ours
    if isinstance(error, TimeoutError):
        return Timeout()
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return _proxy_fault(error.status)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ProxyFailed("The proxy in SITEATLAS_PROXY cannot be reached.")
    if isinstance(error, aiohttp.ClientPayloadError):
        return _payload_fault(error)
    if _find_cause(error, ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        return ConnectionFailed("The site closed the connection.")
    if _find_cause(error, ssl.SSLError, ssl.CertificateError):
        reasons = {getattr(cause, "reason", None) for cause in _exception_chain(error)}
        # The OpenSSL errors for a response that is not TLS.
        not_tls = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
        return TlsError() if reasons.isdisjoint(not_tls | {"HTTP_REQUEST"}) else TlsNotSpoken()
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return DnsError()
    if isinstance(error, (aiohttp.ServerConnectionError, OSError)):
        return ConnectionFailed()
    return HttpProtocolError()


def _proxy_fault(status: int) -> ScanError:
    """The error for a proxy that opened no tunnel: it cannot reach the site, or refuses us."""
    if 500 <= status <= 599:
        return ConnectionFailed(f"The proxy cannot reach the site (status {status}).")
    return ProxyFailed(f"The proxy refused the connection (status {status}).")


def error_for_status(
    status: int, retry_after: float | None = None, price: str | None = None
) -> ScanError | None:
    """The error that a final status means for a document; None for 200 and 304."""
    if status in {200, 304}:
        return None
    if status == 429 or (status == 503 and retry_after is not None):
        return RateLimited(retry_after=retry_after)
    if status == 402:
        return _payment_required(price)
    if status == 401:
        return Blocked(
            "The site requires a login (status 401). Give its scans a header: siteatlas domains "
            "set SITE --header, or siteatlas scan --header."
        )
    if status in {403, 451}:
        return Blocked(f"The site blocks our requests (status {status}).")
    if status == 407:
        return ProxyFailed("The proxy requires a user name and password (status 407).")
    if status in {404, 410}:
        return HttpNotFound()
    if status == 204:
        return EmptyDocument()
    if 500 <= status <= 599:
        return ServerError(f"The site answered with a server error (status {status}).")
    return HttpStatusUnexpected(f"The site answered with status {status}.")


def _payment_required(price: str | None) -> PaymentRequired:
    shown = clean_text(truncated((price or "").strip(), 40))
    detail = f", {shown} per request" if shown else ""
    return PaymentRequired(f"The site demands payment for the document (status 402{detail}).")


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """The wait that a Retry-After header asks for, 0 to 3600 seconds; None if unreadable."""
    if not header:
        return None
    text = header.strip()
    if text.isascii() and text.removeprefix("-").isdigit():
        return _bounded(float(text[:12]))
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return _bounded((moment - (now or datetime.now(UTC))).total_seconds())


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _payload_fault(error: aiohttp.ClientPayloadError) -> ScanError:
    reason = _find_cause(error, HttpProcessingError)
    cut_short = reason is None or isinstance(reason, (ContentLengthError, TransferEncodingError))
    return Truncated() if cut_short else HttpProtocolError()


def _find_cause(error: BaseException, *kinds: type[Fault]) -> Fault | None:
    return next((cause for cause in _exception_chain(error) if isinstance(cause, kinds)), None)


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


CHUNK_BYTES = 64 * 1024
_find_charset = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE).search


class TimeLimit:
    """The seconds that one document may still spend on the network."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self.spent = 0.0

    def spend(self, since: float) -> float:
        """Count the time from `since` (monotonic) until now; returns the time now."""
        now = time.monotonic()
        self.spent += now - since
        self.left -= now - since
        return now


class Speed:
    """Checks that a response is not sent too slowly."""

    def __init__(self, lowest: float, window: float) -> None:
        self._needed = lowest * window
        self._window = window
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)])

    def check(self, seconds: float, total: int) -> None:
        """Raise TooSlow if too few bytes were received in the last window."""
        while len(self._samples) > 1 and self._samples[1][0] <= seconds - self._window:
            self._samples.popleft()
        first_time, first_total = self._samples[0]
        if seconds - first_time >= self._window and total - first_total < self._needed:
            raise TooSlow
        if seconds - self._samples[-1][0] >= self._window / 30:
            self._samples.append((seconds, total))


class Response:
    """The final HTTP response after redirects: status and headers at once, the body on demand."""

    def __init__(
        self,
        raw: aiohttp.ClientResponse,
        *,
        chain: tuple[WebAddress, ...],
        limits: FetchLimits,
        max_bytes: int,
        budget: TimeLimit,
    ) -> None:
        self._raw = raw
        self._chain = chain
        self._limits = limits
        self._max_bytes = max_bytes
        self._budget = budget
        self.wire_bytes = 0

    @property
    def address(self) -> WebAddress:
        """The address that sent this HTTP response, after redirects."""
        return self._chain[-1]

    @property
    def requested(self) -> WebAddress:
        """The address of the HTTP request, before redirects."""
        return self._chain[0]

    @property
    def hops(self) -> tuple[str, ...]:
        """The URLs that redirected the request, in order, the requested one first."""
        return tuple(address.url for address in self._chain[:-1])

    @property
    def status(self) -> int:
        """The status code of the HTTP response."""
        return self._raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The response headers; names are case-insensitive."""
        return self._raw.headers

    @property
    def content_encoding(self) -> str:
        """The content coding in lower case; empty if there is none."""
        return ",".join(self._raw.headers.getall("Content-Encoding", [])).strip().lower()

    @property
    def content_length(self) -> int | None:
        """The length of the body that the response announces."""
        return self._raw.content_length

    @property
    def is_framed(self) -> bool:
        """Whether a body that ends early is noticed: by its length or by its last chunk."""
        codings = self._raw.headers.get("Transfer-Encoding", "").lower()
        return self._raw.content_length is not None or "chunked" in codings

    @property
    def charset(self) -> str | None:
        """The character set that the Content-Type header names, as written."""
        match = _find_charset(self._raw.headers.get("Content-Type", ""))
        return match[1] if match else None

    @property
    def retry_after(self) -> float | None:
        """Seconds that the site asks us to wait, up to one hour."""
        return retry_after_seconds(self._raw.headers.get("Retry-After"))

    @property
    def links(self) -> list[tuple[frozenset[str], str]]:
        """The relations, in lower case, and the full URL of each link of the `Link` headers.

        Empty if one of the URLs is invalid.
        """
        try:
            links = [
                [(name.lower(), str(value)) for name, value in link.items()]
                for link in self._raw.links.values()
            ]
        except ValueError:
            return []
        return [_parse_link(link) for link in links]

    def header_values(self, name: str) -> list[str]:
        """All values of a header that may occur several times."""
        return list(self._raw.headers.getall(name, []))

    def error(self) -> ScanError | None:
        """The error that the response means: a challenge, or else the error of its status."""
        # Set by firewalls that answer in place of the site.
        if any(name in self._raw.headers for name in ("cf-mitigated", "x-amzn-waf-action")):
            return Blocked("The site shows a browser challenge instead of the document.")
        return self.status_error()

    def status_error(self) -> ScanError | None:
        """The error that the status of the HTTP response means; None for 200 and 304."""
        # The price of one request, such as `USD 0.01`, in a response with status 402.
        return error_for_status(self.status, self.retry_after, self.headers.get("crawler-price"))

    def refuse_oversize(self) -> None:
        """Raise TooLarge if the announced length is far beyond the limit.

        A document that is only somewhat too large is read up to the limit.
        """
        announced = self.content_length
        if announced is not None and announced > 2 * self._max_bytes:
            raise TooLarge

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes of the body as received, up to 64 KiB at a time.

        What was read before a limit or a fault is yielded first, then the error is raised.
        """
        speed = Speed(self._limits.lowest_speed, self._limits.speed_window)
        started = self._budget.spent
        while chunk := await self._read_chunk():
            room = self._max_bytes - self.wire_bytes
            self.wire_bytes += len(chunk)
            if len(chunk) > room:
                self.wire_bytes = self._max_bytes
                if room:
                    yield chunk[:room]
                raise TooLarge
            yield chunk
            speed.check(self._budget.spent - started, self.wire_bytes)

    async def _read_chunk(self) -> bytes:
        """The next bytes; only the time spent waiting for the site counts."""
        if self._budget.left <= 0:
            raise Timeout("The site took too long to send the document.")
        content = self._raw.content
        since = time.monotonic()
        try:
            buffered = content.read_nowait(CHUNK_BYTES)
            if buffered or content.at_eof():
                return buffered
            async with asyncio.timeout(min(self._limits.idle, self._budget.left)):
                return await content.read(CHUNK_BYTES)
        except TimeoutError as error:
            raise map_exception(self._hidden_fault() or error) from error
        except LIBRARY_FAULTS as error:
            raise map_exception(error) from error
        finally:
            self._budget.spend(since)

    def _hidden_fault(self) -> BaseException | None:
        """A fault in the chunked encoding, after which aiohttp only stops delivering the body."""
        connection = self._raw.connection
        protocol = connection.protocol if connection is not None else None
        return protocol.exception() if protocol is not None else None


def _parse_link(link: Sequence[tuple[str, str]]) -> tuple[frozenset[str], str]:
    relations = " ".join(value for name, value in link if name == "rel")
    # aiohttp adds the URL behind the parameters, one of which may have the same name.
    return frozenset(relations.lower().split()), link[-1][1]
