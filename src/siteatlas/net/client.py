"""The HTTP client of a scan: manual redirects, limits and retries, behind the egress gate.

Owns what is sent and when it is retried. Statuses are returned, errors are raised.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from errno import ECONNREFUSED

import aiohttp

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import (
    AddressError,
    AddressScheme,
    ConnectionFailed,
    DnsError,
    DnsNameUnknown,
    HttpProtocolError,
    RedirectInvalid,
    RedirectLoop,
    RedirectScheme,
    ScanError,
    Timeout,
    TooManyRedirects,
)
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.faults import (
    LIBRARY_FAULTS,
    map_exception,
    retry_after_seconds,
)
from siteatlas.net.gate import GatedClient, choose_connect_target, request_options
from siteatlas.net.limits import FetchLimits
from siteatlas.net.operator_headers import checked_headers
from siteatlas.net.politeness import Politeness
from siteatlas.net.proxy import Proxy
from siteatlas.net.resolver import Resolver
from siteatlas.net.response import Response, TimeLimit
from siteatlas.net.waiting import current_waits

REDIRECTS = frozenset({301, 302, 303, 307, 308})
NOT_MODIFIED = 304
PARTIAL_CONTENT = 206
SWITCHING_PROTOCOLS = 101
TOO_MANY_REQUESTS = 429
SERVER_ERRORS = range(500, 600)

OnRedirect = Callable[[WebAddress, WebAddress], None]
# The ETag and the Last-Modified date that an address gave.
ValidatorsOf = Callable[[WebAddress], tuple[str | None, str | None]]


class HttpClient(GatedClient):
    """Fetches documents for one scan; use it with `async with`.

    `headers` are sent only to hosts that the policy lists as the operator's own. `tls` replaces the
    default trust store. With a `proxy`, all other hosts are requested through it, and it resolves
    their names. `on_redirect` is called before each redirect and raises a ScanError to prevent it.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        politeness: Politeness,
        *,
        user_agent: str,
        limits: FetchLimits = FetchLimits(),
        resolver: Resolver | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        super().__init__(policy, limits, user_agent=user_agent, resolver=resolver, tls=tls)
        self._proxy = proxy
        self._politeness = politeness
        self._own_headers = checked_headers(headers or {})
        self._answering: set[str] = set()
        self.on_redirect: OnRedirect | None = None

    def check(self, address: WebAddress) -> None:
        """Raise EgressDenied if the address alone shows that it may not be contacted."""
        self._policy.check(address)

    @asynccontextmanager
    async def get(
        self,
        address: WebAddress,
        *,
        validators_of: ValidatorsOf | None = None,
        max_bytes: int | None = None,
        accept_encoding: str = "gzip",
    ) -> AsyncIterator[Response]:
        """Request a document and follow redirects; the body is read through `Response.chunks`.

        `validators_of` makes the request conditional: each address gets the validators that it
        gave, and no other. Raises ScanError for faults of the network and EgressDenied for
        forbidden addresses.
        """
        await fair_loop().yield_to_interactive()
        budget = TimeLimit(self._limits.document)
        chain = [address]
        async with AsyncExitStack() as exchange:
            while True:
                validators = validators_of(chain[-1]) if validators_of else (None, None)
                headers = {"Accept-Encoding": accept_encoding, **_conditions(*validators)}
                raw = await self._open(chain[-1], headers, budget, exchange)
                target = self._redirect_target(raw, chain)
                if target is None:
                    break
                await exchange.aclose()
                chain.append(target)
            yield Response(
                raw,
                chain=tuple(chain),
                limits=self._limits,
                max_bytes=self._limits.max_bytes if max_bytes is None else max_bytes,
                budget=budget,
            )

    async def _open(
        self,
        address: WebAddress,
        headers: Mapping[str, str],
        budget: TimeLimit,
        exchange: AsyncExitStack,
    ) -> aiohttp.ClientResponse:
        """One hop with its retries; slot and connection are held by `exchange`."""
        self._policy.require(address)
        own = self._policy.is_own(address)
        sent = {**headers, **self._own_headers} if own else headers
        for attempt in range(1, self._limits.tries + 1):
            last, delay = attempt == self._limits.tries, self._retry_delay(attempt)
            ips = () if own or self._proxy else await self._look_up(address, budget)
            slot = self._politeness.slot(
                address, own, max_retry_after=self._limits.max_retry_after, ips=ips
            )
            await exchange.enter_async_context(slot)
            try:
                raw = await self._send(address, sent, budget, ips)
            except ScanError as fault:
                if last or budget.left <= 0 or not self._may_pass(fault, address):
                    self._record_fault(address, fault, own=own)
                    raise
            else:
                exchange.callback(raw.release)
                self._politeness.record(address, ok=True, own=own)
                self._answering.add(address.origin)
                wait = self._wait_in_response(raw, address, attempt, own=own)
                if last or not _is_passing_error(raw) or wait > self._limits.max_retry_after:
                    return raw
                delay = max(delay, wait)
            await exchange.aclose()
            with current_waits().request(), current_waits().wait(delay):
                await asyncio.sleep(delay)
        raise AssertionError("FetchLimits.tries must be at least 1")

    def _may_pass(self, fault: ScanError, address: WebAddress) -> bool:
        """Whether a retry, a moment later, may succeed.

        Not if the name does not exist, the port refuses or the host has never responded.
        """
        if isinstance(fault, DnsNameUnknown):
            return False
        if isinstance(fault, Timeout):
            return address.origin in self._answering
        refused = isinstance(fault.__cause__, OSError) and fault.__cause__.errno == ECONNREFUSED
        return isinstance(fault, (ConnectionFailed, DnsError)) and not refused

    def _wait_in_response(
        self, raw: aiohttp.ClientResponse, address: WebAddress, attempt: int, *, own: bool
    ) -> float:
        """Seconds that a response asks us to wait; 429 means the host, 503 this document."""
        seconds = retry_after_seconds(raw.headers.get("Retry-After"))
        if raw.status == TOO_MANY_REQUESTS:
            wait = self._retry_delay(attempt) if seconds is None else seconds
            self._politeness.pause(address, wait, own=own)
            return wait
        return seconds or 0.0

    def _retry_delay(self, attempt: int) -> float:
        """Seconds to wait before a failed request or lookup is sent again; doubles each time."""
        return self._limits.retry_delay * float(2 ** (attempt - 1)) * _retry_jitter()

    async def _look_up(self, address: WebAddress, budget: TimeLimit) -> tuple[str, ...]:
        """The IP addresses to connect to, for a host that is not the operator's own."""
        for attempt in range(1, self._limits.tries + 1):
            since = time.monotonic()
            try:
                return await self._gate.look_up(address)
            except DnsError as fault:
                if attempt == self._limits.tries or isinstance(fault, DnsNameUnknown):
                    raise
            finally:
                budget.spend(since)
            await asyncio.sleep(self._retry_delay(attempt))
        raise AssertionError("FetchLimits.tries must be at least 1")

    async def _send(
        self,
        address: WebAddress,
        headers: Mapping[str, str],
        budget: TimeLimit,
        ips: Sequence[str],
    ) -> aiohttp.ClientResponse:
        """Send one request and wait for the response headers."""
        if self._session is None:
            raise RuntimeError("HttpClient must be entered with `async with`")
        url = self._request_url(address)
        since = time.monotonic()
        try:
            proxy = None if self._policy.is_own(address) else self._proxy
            with choose_connect_target(address, proxy, ips=ips) as target:
                async with asyncio.timeout(min(budget.left, self._response_timeout)):
                    raw = await self._session.get(
                        url, allow_redirects=False, **request_options(headers, address, proxy)
                    )
                try:
                    self._gate.verify_peers(target)
                    self._check_head(raw, conditional=_is_conditional(headers))
                except BaseException:
                    raw.close()
                    raise
        except LIBRARY_FAULTS as error:
            raise map_exception(error) from error
        finally:
            budget.spend(since)
        return raw

    @property
    def _response_timeout(self) -> float:
        """The maximum time from the name lookup to the response headers, in seconds."""
        return self._limits.dns + self._limits.connect + self._limits.first_byte

    def _check_head(self, raw: aiohttp.ClientResponse, *, conditional: bool) -> None:
        """Raise HttpProtocolError for oversized response headers or an unexpected status."""
        size = sum(len(name) + len(value) + 4 for name, value in raw.raw_headers)
        if size > self._limits.header_bytes:
            raise HttpProtocolError("The response headers are too large.")
        unrequested = raw.status == NOT_MODIFIED and not conditional
        if unrequested or raw.status in {SWITCHING_PROTOCOLS, PARTIAL_CONTENT}:
            raise HttpProtocolError(f"The site sent an unexpected status {raw.status}.")

    def _redirect_target(
        self, raw: aiohttp.ClientResponse, chain: list[WebAddress]
    ) -> WebAddress | None:
        locations = set(raw.headers.getall("Location", []))
        if raw.status not in REDIRECTS or not locations:
            return None
        if len(locations) > 1:
            raise RedirectInvalid("The redirect names several addresses.")
        try:
            target = parse_url(locations.pop(), base=chain[-1].url)
        except AddressScheme as error:
            raise RedirectScheme from error
        except AddressError as error:
            raise RedirectInvalid from error
        if target in chain:
            raise RedirectLoop
        if len(chain) > self._limits.redirects:
            raise TooManyRedirects
        if self.on_redirect is not None:
            self.on_redirect(chain[-1], target)
        return target

    def _record_fault(self, address: WebAddress, fault: ScanError, *, own: bool) -> None:
        """Count a failed connection or a timeout against the host; any response shows it is up."""
        if isinstance(fault, (ConnectionFailed, Timeout)):
            self._politeness.record(address, ok=False, own=own)


def _conditions(etag: str | None, last_modified: str | None) -> dict[str, str]:
    """The headers of a conditional request; validators that no header can hold are left out."""
    validators = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {
        name: value
        for name, value in validators.items()
        if value and value.isascii() and value.isprintable()
    }


def _is_conditional(headers: Mapping[str, str]) -> bool:
    """Whether a request has validators, so that the response may be 304."""
    return "If-None-Match" in headers or "If-Modified-Since" in headers


def _is_passing_error(raw: aiohttp.ClientResponse) -> bool:
    """Whether a response may be different a moment later."""
    return raw.status in SERVER_ERRORS or raw.status == TOO_MANY_REQUESTS


def _retry_jitter() -> float:
    """A random factor for the delay of a retry, so that requests do not repeat in step."""
    return random.uniform(0.5, 1.5)
