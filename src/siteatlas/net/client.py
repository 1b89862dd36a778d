"""The HTTP client of all scans: manual redirects, limits and retries, behind the egress gate.

Owns what is sent and when it is retried. Statuses are returned, errors are raised.
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from errno import ECONNREFUSED
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Self

import aiohttp

from siteatlas.aio import fair_loop
from siteatlas.errors import (
    AddressError,
    AddressScheme,
    ConnectionFailed,
    DnsError,
    DnsNameUnknown,
    HeaderNotSent,
    HttpProtocolError,
    RateLimited,
    RedirectInvalid,
    RedirectLoop,
    RedirectScheme,
    ScanError,
    Timeout,
    TooManyRedirects,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.egress import EgressPolicy, read_ip
from siteatlas.net.gate import (
    Gate,
    OriginHeaders,
    Proxy,
    Resolver,
    checked_headers,
    choose_connect_target,
    request_options,
    request_url,
    time_limits,
)
from siteatlas.net.response import (
    LIBRARY_FAULTS,
    MAX_RETRY_WAIT_SECONDS,
    FetchLimits,
    Response,
    TimeLimit,
    map_exception,
    retry_after_seconds,
)

log = get_logger("net")
OWN_CONNECTIONS = 16

# An IP address may serve thousands of hosts, or be what thousands of names point at: it gets more
# than one host does, but not what all of them together would get.
CONNECTIONS_PER_ADDRESS = 8

MAX_IDLE_HOSTS = 4096
HostKey = tuple[str, int, bool]
OnIdle = Callable[[float], None]
Resume = Callable[[], Awaitable[None]]
OnRedirect = Callable[[WebAddress, WebAddress], None]

# The ETag and the Last-Modified date that an address gave.
ValidatorsOf = Callable[[WebAddress], tuple[str | None, str | None]]


class HttpClient:
    """Fetches documents; use it with `async with`. One for all scans of a process.

    `for_site` gives a scan its own policy, headers, redirects and connections; what is looked up
    and paced is shared. `headers` are sent only to hosts that the policy lists as the operator's
    own. `tls` replaces the default trust store. With a `proxy`, all other hosts are requested
    through it, and it resolves their names.
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
        gate: Gate | None = None,
        site_headers: OriginHeaders | None = None,
        on_redirect: OnRedirect | None = None,
    ) -> None:
        self.user_agent = user_agent
        self.politeness = politeness
        self._policy = policy
        self._limits = limits
        self._timeout = time_limits(limits)
        self._tls = tls
        self._proxy = proxy
        self._gate = gate or Gate(resolver)
        self._headers = {"User-Agent": user_agent, "Accept": "*/*"}
        self._own_headers = checked_headers(headers or {})
        self._site_headers = site_headers
        self._on_redirect = on_redirect
        self._answering: set[tuple[str, int, bool]] = set()

    def for_site(
        self,
        site: WebAddress,
        *,
        headers: OriginHeaders | None = None,
        on_redirect: OnRedirect | None = None,
    ) -> Self:
        """This client as a scan of `site` uses it.

        `headers` are sent to their origin alone; `on_redirect` is called before each redirect and
        raises a ScanError to prevent it.
        """
        return type(self)(
            self._policy.for_site(site),
            self.politeness,
            user_agent=self.user_agent,
            limits=self._limits,
            headers=self._own_headers,
            tls=self._tls,
            proxy=self._proxy,
            gate=self._gate,
            site_headers=headers,
            on_redirect=on_redirect,
        )

    async def __aenter__(self) -> Self:
        await self._gate.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._gate.__aexit__()

    def close_idle(self) -> None:
        """Close the connections of this client on which no request runs."""
        self._gate.close_idle(self)

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
        stop_at: str | None = None,
    ) -> AsyncIterator[Response]:
        """Request a document and follow redirects; the body is read through `Response.chunks`.

        `validators_of` makes the request conditional: each address gets the validators that it
        gave, and no other. A redirect to `stop_at` is not followed; the response then has that
        address, and the status of the redirect. Raises ScanError for faults of the network and
        EgressDenied for forbidden addresses.
        """
        await fair_loop().yield_to_interactive()
        budget = TimeLimit(self._limits.document)
        chain = [address]
        exchange = _Exchange()
        try:
            while True:
                headers = {**self._headers, "Accept-Encoding": accept_encoding}
                if validators_of is not None:
                    headers |= _conditions(*validators_of(chain[-1]))
                raw = await self._open(chain[-1], headers, budget, exchange)
                target = self._redirect_target(raw, chain)
                self._require_headers_sent(raw.status, chain[-1], target)
                if target is None:
                    break
                chain.append(target)
                if target.url == stop_at:
                    break
                exchange.end()
            yield Response(
                raw,
                chain=tuple(chain),
                limits=self._limits,
                max_bytes=self._limits.max_bytes if max_bytes is None else max_bytes,
                budget=budget,
            )
        finally:
            exchange.end()

    async def _open(
        self,
        address: WebAddress,
        headers: dict[str, str],
        budget: TimeLimit,
        exchange: _Exchange,
    ) -> aiohttp.ClientResponse:
        self._policy.require(address)
        own = self._policy.is_own(address)
        if own:
            headers |= self._own_headers
        if self._site_headers is not None and address.origin == self._site_headers.origin:
            headers |= self._site_headers.values
        proxy = self._proxy_for(address)
        for attempt in range(1, self._limits.tries + 1):
            last, delay = attempt == self._limits.tries, self._retry_delay(attempt)
            ips = () if own or proxy else await self._look_up(address, budget)
            exchange.slot = self.politeness.slot(
                address, own, max_retry_after=self._limits.max_retry_after, ips=ips
            )
            await exchange.slot.take()
            try:
                raw = await self._send(address, headers, budget, ips)
            except ScanError as fault:
                if last or budget.left <= 0 or not self._may_pass(fault, address):
                    self._record_fault(address, fault, own=own)
                    raise
            else:
                exchange.raw = raw
                self.politeness.record(address, ok=True, own=own)
                self._answering.add(_host_key(address))
                wait = self._wait_in_response(raw, address, attempt, own=own)
                if last or not _is_passing_error(raw) or wait > self._limits.max_retry_after:
                    return raw
                delay = max(delay, wait)
            exchange.end()
            with current_waits().request(), current_waits().wait(delay):
                await asyncio.sleep(delay)
        raise AssertionError("FetchLimits.tries must be at least 1")

    def _proxy_for(self, address: WebAddress) -> Proxy | None:
        if self._proxy is None or self._policy.is_listed(address.host, address.port):
            return None
        return self._proxy

    def _may_pass(self, fault: ScanError, address: WebAddress) -> bool:
        """Whether a retry, a moment later, may succeed.

        Not if the name does not exist, the port refuses or the host has never responded.
        """
        if isinstance(fault, DnsNameUnknown):
            return False
        if isinstance(fault, Timeout):
            return _host_key(address) in self._answering
        refused = isinstance(fault.__cause__, OSError) and fault.__cause__.errno == ECONNREFUSED
        return isinstance(fault, (ConnectionFailed, DnsError)) and not refused

    def _wait_in_response(
        self, raw: aiohttp.ClientResponse, address: WebAddress, attempt: int, *, own: bool
    ) -> float:
        """Seconds that a response asks us to wait; 429 means the host, 503 this document."""
        seconds = retry_after_seconds(raw.headers.get("Retry-After"))
        if raw.status == 429:
            wait = self._retry_delay(attempt) if seconds is None else seconds
            self.politeness.pause(address, wait, own=own)
            return wait
        return seconds or 0.0

    def _retry_delay(self, attempt: int) -> float:
        return self._limits.retry_delay * float(2 ** (attempt - 1)) * _retry_jitter()

    async def _look_up(self, address: WebAddress, budget: TimeLimit) -> tuple[str, ...]:
        for attempt in range(1, self._limits.tries + 1):
            since = time.monotonic()
            try:
                return await self._gate.look_up(address, self._policy, self._limits)
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
        session, url, proxy = self._gate.session, request_url(address), self._proxy_for(address)
        since = time.monotonic()
        try:
            with choose_connect_target(
                address, self._policy, self._limits, proxy, ips=ips, user=self
            ):
                async with asyncio.timeout(min(budget.left, self._response_timeout)):
                    raw = await session.get(
                        url,
                        allow_redirects=False,
                        timeout=self._timeout,
                        ssl=self._tls or True,
                        **request_options(headers, address, proxy),
                    )
        except LIBRARY_FAULTS as error:
            raise map_exception(error) from error
        finally:
            budget.spend(since)
        try:
            self._check_head(raw, conditional=_is_conditional(headers))
        except BaseException:
            raw.close()
            raise
        return raw

    @property
    def _response_timeout(self) -> float:
        return self._limits.dns + self._limits.connect + self._limits.first_byte

    def _check_head(self, raw: aiohttp.ClientResponse, *, conditional: bool) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in raw.raw_headers)
        if size > self._limits.header_bytes:
            raise HttpProtocolError("The response headers are too large.")
        unrequested = raw.status == 304 and not conditional
        if unrequested or raw.status in {101, 206}:
            raise HttpProtocolError(f"The site sent an unexpected status {raw.status}.")

    def _redirect_target(
        self, raw: aiohttp.ClientResponse, chain: list[WebAddress]
    ) -> WebAddress | None:
        locations = set(raw.headers.getall("Location", []))
        if raw.status not in {301, 302, 303, 307, 308} or not locations:
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
        if self._on_redirect is not None:
            self._on_redirect(chain[-1], target)
        return target

    def _require_headers_sent(
        self, status: int, address: WebAddress, target: WebAddress | None
    ) -> None:
        """Raise HeaderNotSent if the site leads away from their origin, or needs them elsewhere."""
        own = self._site_headers and self._site_headers.origin
        needed = address if status == 401 else target if address.origin == own else None
        if own and needed and needed.origin != own:
            raise HeaderNotSent(
                f"The headers for {own} are not sent to {needed.origin}. "
                "If that is your site, enter them for it."
            )

    def _record_fault(self, address: WebAddress, fault: ScanError, *, own: bool) -> None:
        """Count a failed connection or a timeout against the host; any response shows it is up."""
        if isinstance(fault, (ConnectionFailed, Timeout)):
            self.politeness.record(address, ok=False, own=own)


class _Exchange:
    """What one request holds until its response was read: a slot, and the connection."""

    def __init__(self) -> None:
        self.slot: Slot | None = None
        self.raw: aiohttp.ClientResponse | None = None

    def end(self) -> None:
        raw, slot = self.raw, self.slot
        self.raw = self.slot = None
        try:
            if raw is not None:
                raw.release()
        finally:
            if slot is not None:
                slot.release()


def _host_key(address: WebAddress) -> tuple[str, int, bool]:
    return address.host, address.port, address.scheme == "https"


def _conditions(etag: str | None, last_modified: str | None) -> dict[str, str]:
    validators = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {
        name: value
        for name, value in validators.items()
        if value and value.isascii() and value.isprintable()
    }


def _is_conditional(headers: Mapping[str, str]) -> bool:
    return "If-None-Match" in headers or "If-Modified-Since" in headers


def _is_passing_error(raw: aiohttp.ClientResponse) -> bool:
    return raw.status == 429 or 500 <= raw.status <= 599


def _retry_jitter() -> float:
    return random.uniform(0.5, 1.5)


async def _resume_at_once() -> None:
    """Without an observer, the next HTTP request is sent without a further wait."""


class Waits:
    """The requests of one job, and which of them wait.

    `on_idle` is called when every open request waits, with the seconds until the first of them
    can be sent (infinite when that depends on other requests). It is called again when one more
    request waits. `resume` is awaited before the job sends anything after that, so it may block
    until the job has its slot back.
    """

    def __init__(self, on_idle: OnIdle = lambda _: None, resume: Resume = _resume_at_once) -> None:
        self._on_idle = on_idle
        self._resume = resume
        self._resuming = asyncio.Lock()
        self._requests = 0
        self._ends: dict[object, float] = {}
        self._is_idle = False

    @property
    def is_idle(self) -> bool:
        """Whether all open HTTP requests of the job wait for their turn, and it has not resumed."""
        return self._is_idle

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request, from its first wait until its response has been read."""
        self.begin_request()
        try:
            yield
        finally:
            self.end_request()

    def begin_request(self) -> None:
        """Count a request until `end_request`."""
        self._requests += 1

    def end_request(self) -> None:
        """Count one request less; those that are left may all be waiting."""
        self._requests -= 1
        self._report_idle()

    @contextmanager
    def wait(self, seconds: float = math.inf) -> Iterator[None]:
        """Report that one of the requests waits."""
        key = object()
        self._ends[key] = time.monotonic() + seconds
        self._report_idle()
        try:
            yield
        finally:
            del self._ends[key]

    async def resume_requests(self) -> None:
        """Before an HTTP request is sent: wait until a job that was reported as idle may resume."""
        async with self._resuming:
            if self._is_idle:
                await self._resume()
                self._is_idle = False

    def _report_idle(self) -> None:
        if self._ends and len(self._ends) >= self._requests:
            self._is_idle = True
            self._on_idle(max(min(self._ends.values()) - time.monotonic(), 0.0))


_waits: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def observe_waits(waits: Waits) -> Iterator[None]:
    """Report all waits of requests made inside, also by tasks started inside, to `waits`."""
    token = _waits.set(waits)
    try:
        yield
    finally:
        _waits.reset(token)


def current_waits() -> Waits:
    """The `Waits` to which requests of the running task report; unobserved by default."""
    return _waits.get() or Waits()


@dataclass(slots=True)
class _Host:
    free: asyncio.Semaphore
    delay: float
    users: int = 0
    next_start: float = 0.0
    failures: int = 0
    rest: float = 0.0
    closed_until: float = 0.0
    paused_until: float = 0.0
    network: str | None = None


class Politeness:
    """Hands out slots to hosts. `delay` is in seconds between two starts.

    The operator's own hosts have no delay and more connections, unless `exempt_own` is false.
    `address_rates` are starts per second at IP addresses in these ranges; the first match counts.
    """

    def __init__(
        self,
        delay: float = 0.5,
        connections: int = 2,
        *,
        exempt_own: bool = True,
        address_rates: Sequence[tuple[IPv4Network | IPv6Network, float]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address_rates = address_rates
        self._delay = delay
        self._connections = connections
        self._exempt_own = exempt_own
        self._clock = clock
        self._hosts: dict[HostKey, _Host] = {}

    def slot(
        self,
        address: WebAddress,
        own: bool = False,
        *,
        max_retry_after: float = MAX_RETRY_WAIT_SECONDS,
        ips: Iterable[str] = (),
    ) -> Slot:
        """A slot for one request; wait for it with `async with` or `take`.

        `own` says that the host is the operator's own. A pause that the host requested is waited
        for if it ends within `max_retry_after` seconds; else RateLimited says how long it lasts.
        `ips` are the IP addresses that the request may connect to; the slot counts for each
        of them.
        """
        host = self._host(address, own=own)
        # IPv4 first.
        networks = sorted(set(map(_network, ips)), key=lambda network: (":" in network, network))
        if networks:
            host.network = networks[0]
        shared = [self._address(network) for network in networks]
        return Slot(host, shared, max_retry_after, self._clock)

    def network_of(self, address: WebAddress) -> str | None:
        """The IP address of a host at its last request, for IPv6 its /64; None for own hosts."""
        host = self._hosts.get((address.host, address.port, False))
        return None if host is None else host.network

    def set_crawl_delay(self, address: WebAddress, seconds: float) -> None:
        """Set the minimum delay between requests to this host, up to 30 seconds."""
        host = self._host(address, own=False)
        host.delay = max(self._delay, min(seconds, 30.0))

    def pause(self, address: WebAddress, seconds: float, *, own: bool = False) -> None:
        """Send no request to this host for these seconds, because it requested a pause."""
        host = self._host(address, own=own)
        host.paused_until = max(host.paused_until, self._clock() + seconds)

    def record(self, address: WebAddress, ok: bool, *, own: bool = False) -> None:
        """Record whether a request succeeded; after five failures in a row the host rests."""
        host = self._host(address, own=own)
        if ok:
            host.failures, host.rest, host.closed_until = 0, 0.0, 0.0
            return
        now = self._clock()
        if host.closed_until > now:
            return
        host.failures += 1
        if host.failures >= 5:
            host.rest = min(max(host.rest * 2, 60.0), 900.0)
            host.closed_until = now + host.rest
            log.warning("host_paused", host=address.host, port=address.port, seconds=host.rest)

    def _host(self, address: WebAddress, *, own: bool) -> _Host:
        exempt = own and self._exempt_own
        connections = OWN_CONNECTIONS if exempt else self._connections
        delay = 0.0 if exempt else self._delay
        return self._remembered((address.host, address.port, exempt), connections, delay)

    def _address(self, network: str) -> _Host:
        """The limits and state that all hosts on one IP address share."""
        connections = self._connections * CONNECTIONS_PER_ADDRESS
        first = ip_network(network).network_address
        rates = (rate for range_, rate in self._address_rates if first in range_)
        rate = next(rates, None)
        delay = self._delay / 4 if rate is None else 1 / rate
        return self._remembered((network, 0, False), connections, delay)

    def _remembered(self, key: HostKey, connections: int, delay: float) -> _Host:
        host = self._hosts.pop(key, None)
        if host is None:
            self._forget_idle()
            host = _Host(asyncio.Semaphore(connections), delay)
        self._hosts[key] = host
        return host

    def _forget_idle(self) -> None:
        if len(self._hosts) < MAX_IDLE_HOSTS:
            return
        unused = [key for key, host in self._hosts.items() if not host.users]
        for key in unused[: MAX_IDLE_HOSTS // 2]:
            del self._hosts[key]


class Slot:
    """One request at a host and at the IP addresses that it shares with others."""

    def __init__(
        self,
        host: _Host,
        shared: Sequence[_Host],
        max_retry_after: float,
        clock: Callable[[], float],
    ) -> None:
        self._host = host
        self._shared = shared
        self._max_retry_after = max_retry_after
        self._clock = clock
        self._waits = current_waits()
        self._held: list[_Host] = []
        self._is_open = False

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_error: object) -> None:
        self.release()

    async def take(self) -> None:
        """Wait for the turn; ConnectionFailed if the host rests, RateLimited if it pauses long.

        A place at what is shared is not held while the turn at the host is waited for.
        """
        host, shared = self._host, self._shared
        self._is_open = True
        self._waits.begin_request()
        for one in (host, *shared):
            one.users += 1
        try:
            self._refuse_resting()
            await self._hold(host)
            while True:
                await self._wait_for_turn((host,))
                for other in shared:
                    await self._hold(other)
                if shared:
                    await self._wait_for_turn(shared)
                    if self._left((host,)) > 0:
                        self._let_go(keep=1)
                        continue
                break
            self._refuse_resting()
        except BaseException:
            self.release()
            raise
        now = self._clock()
        for started in self._held:
            started.next_start = now + started.delay

    def release(self) -> None:
        """Let the next request go; at any time, also twice."""
        if not self._is_open:
            return
        self._is_open = False
        self._let_go()
        for one in (self._host, *self._shared):
            one.users -= 1
        self._waits.end_request()

    async def _hold(self, host: _Host) -> None:
        if host.free.locked():
            with self._waits.wait():
                await host.free.acquire()
        else:
            await host.free.acquire()
        self._held.append(host)

    def _let_go(self, keep: int = 0) -> None:
        while len(self._held) > keep:
            self._held.pop().free.release()

    async def _wait_for_turn(self, hosts: Sequence[_Host]) -> None:
        while (left := self._left(hosts)) > 0 or self._waits.is_idle:
            if left > 0:
                with self._waits.wait(left):
                    await asyncio.sleep(left)
            else:
                # A slot may be long in coming, so the turn is looked at again after it.
                await self._waits.resume_requests()

    def _left(self, hosts: Sequence[_Host]) -> float:
        now, left = self._clock(), 0.0
        for host in hosts:
            paused = host.paused_until - now
            if paused > self._max_retry_after:
                raise RateLimited(retry_after=paused)
            left = max(left, paused, host.next_start - now if host.delay else 0.0)
        return left

    def _refuse_resting(self) -> None:
        if self._host.closed_until > self._clock():
            raise ConnectionFailed(
                "The site failed several times in a row; requests to it are paused."
            )


def _network(ip: str) -> str:
    """What counts as one IP address: for IPv6 the network of one customer."""
    found = read_ip(ip)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return ip
