"""Politeness per host: concurrent requests, delay between requests, pause after failures.

Hosts that share an IP address also share a larger limit of connections and requests. There is one
instance per process. `client.py` decides what counts as a failure; `waiting.py` tells the runner of
a job when the job is waiting here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_network

from siteatlas.errors import ConnectionFailed, RateLimited
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.net.limits import MAX_RETRY_WAIT_SECONDS
from siteatlas.net.ranges import read_ip
from siteatlas.net.waiting import Waits, current_waits

log = get_logger("net")

HOST_DELAY = 0.5
HOST_CONNECTIONS = 2
OWN_CONNECTIONS = 16
# An IP address may serve thousands of hosts, or be what thousands of names point at: it gets more
# than one host does, but not what all of them together would get.
CONNECTIONS_PER_ADDRESS = 8
STARTS_PER_ADDRESS = 4
MAX_CRAWL_DELAY_SECONDS = 30.0
FAILURES_TO_OPEN = 5
MIN_REST_SECONDS = 60.0
MAX_REST_SECONDS = 900.0
MAX_IDLE_HOSTS = 4096

HostKey = tuple[str, int, bool]


@dataclass(slots=True)
class _Host:
    """What is known of one host or IP address while it is in use, and for a while after."""

    free: asyncio.Semaphore
    delay: float
    users: int = 0
    next_start: float = 0.0
    failures: int = 0
    rest: float = 0.0
    closed_until: float = 0.0
    paused_until: float = 0.0


class Politeness:
    """Hands out slots to hosts. `delay` is in seconds between two starts.

    The operator's own hosts have no delay and more connections, unless `exempt_own` is false.
    """

    def __init__(
        self,
        delay: float = HOST_DELAY,
        connections: int = HOST_CONNECTIONS,
        *,
        exempt_own: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delay = delay
        self._connections = connections
        self._exempt_own = exempt_own
        self._clock = clock
        self._hosts: dict[HostKey, _Host] = {}

    @asynccontextmanager
    async def slot(
        self,
        address: WebAddress,
        own: bool = False,
        *,
        max_retry_after: float = MAX_RETRY_WAIT_SECONDS,
        ips: Iterable[str] = (),
    ) -> AsyncIterator[None]:
        """Wait for a slot for one request and hold it; ConnectionFailed if the host rests.

        `own` says that the host is the operator's own. A pause that the host requested is waited
        for if it ends within `max_retry_after` seconds; else RateLimited says how long it lasts.
        `ips` are the IP addresses that the request may connect to; the slot counts for each
        of them.
        """
        waits = current_waits()
        host = self._host(address, own=own)
        shared = [self._address(network) for network in sorted(set(map(_network, ips)))]
        with waits.request():
            self._refuse_resting(host)
            async with _place(host, waits), await self._turn(host, shared, max_retry_after, waits):
                self._refuse_resting(host)
                yield

    def set_crawl_delay(self, address: WebAddress, seconds: float) -> None:
        """Set the minimum delay between requests to this host, up to 30 seconds."""
        host = self._host(address, own=False)
        host.delay = max(self._delay, min(seconds, MAX_CRAWL_DELAY_SECONDS))

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
        if host.failures >= FAILURES_TO_OPEN:
            host.rest = min(max(host.rest * 2, MIN_REST_SECONDS), MAX_REST_SECONDS)
            host.closed_until = now + host.rest
            log.warning("host_paused", host=address.host, port=address.port, seconds=host.rest)

    def _host(self, address: WebAddress, *, own: bool) -> _Host:
        """The limits and state of the host that this address is on."""
        exempt = own and self._exempt_own
        connections = OWN_CONNECTIONS if exempt else self._connections
        delay = 0.0 if exempt else self._delay
        return self._remembered((address.host, address.port, exempt), connections, delay)

    def _address(self, network: str) -> _Host:
        """The limits and state that all hosts on one IP address share."""
        connections = self._connections * CONNECTIONS_PER_ADDRESS
        return self._remembered((network, 0, False), connections, self._delay / STARTS_PER_ADDRESS)

    def _remembered(self, key: HostKey, connections: int, delay: float) -> _Host:
        """The state kept under this key, now the most recently used; created if there is none."""
        host = self._hosts.pop(key, None)
        if host is None:
            self._forget_idle()
            host = _Host(asyncio.Semaphore(connections), delay)
        self._hosts[key] = host
        return host

    def _forget_idle(self) -> None:
        """Keep the memory bounded: halve it when full, the longest unused hosts first."""
        if len(self._hosts) < MAX_IDLE_HOSTS:
            return
        unused = [key for key, host in self._hosts.items() if not host.users]
        for key in unused[: MAX_IDLE_HOSTS // 2]:
            del self._hosts[key]

    async def _turn(
        self, host: _Host, shared: Sequence[_Host], max_retry_after: float, waits: Waits
    ) -> AsyncExitStack:
        """Wait for a turn at the host and at what it shares; holds places at the latter.

        A place that is shared is not held while the turn at the host is waited for.
        """
        while True:
            await self._wait_for_turn([host], max_retry_after, waits)
            async with AsyncExitStack() as places:
                for other in shared:
                    await places.enter_async_context(_place(other, waits))
                await self._wait_for_turn(shared, max_retry_after, waits)
                if self._left([host], max_retry_after) > 0:
                    continue
                for started in (host, *shared):
                    started.next_start = self._clock() + started.delay
                return places.pop_all()

    async def _wait_for_turn(
        self, hosts: Sequence[_Host], max_retry_after: float, waits: Waits
    ) -> None:
        """Wait until a request to all of these may start, with a slot for the job."""
        while (left := self._left(hosts, max_retry_after)) > 0 or waits.is_idle:
            if left > 0:
                with waits.wait(left):
                    await asyncio.sleep(left)
            else:
                # A slot may be long in coming, so the turn is looked at again after it.
                await waits.resume_requests()

    def _left(self, hosts: Sequence[_Host], max_retry_after: float) -> float:
        """Seconds until the next request may start; RateLimited if a pause takes too long."""
        now = self._clock()
        paused = max((host.paused_until - now for host in hosts), default=0.0)
        if paused > max_retry_after:
            raise RateLimited(retry_after=paused)
        starts = (host.next_start - now for host in hosts if host.delay)
        return max(paused, max(starts, default=0.0))

    def _refuse_resting(self, host: _Host) -> None:
        """Raise ConnectionFailed if the host rests after several failures."""
        if host.closed_until > self._clock():
            raise ConnectionFailed(
                "The site failed several times in a row; requests to it are paused."
            )


@asynccontextmanager
async def _place(host: _Host, waits: Waits) -> AsyncIterator[None]:
    """Wait for one of the connections and hold it."""
    host.users += 1
    try:
        if host.free.locked():
            with waits.wait():
                await host.free.acquire()
        else:
            await host.free.acquire()
        try:
            yield
        finally:
            host.free.release()
    finally:
        host.users -= 1


def _network(ip: str) -> str:
    """What counts as one IP address: for IPv6 the network of one customer."""
    found = read_ip(ip)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return ip
