"""Access marks of routes, and limits of requests, failed logins, event streams and queued scans.

Every route declares exactly one access mark as a dependency: `READ`, `SCAN` and `ADMIN` name the
scope that a request needs; `PUBLIC` is for what everyone may see. An application with an unmarked
route does not start.

Requests that change something and failed logins are counted in PostgreSQL, across all processes;
reads are counted per process, because a statement for each would double their cost. In local mode,
only the total number of event streams is limited.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Annotated, Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from siteatlas.access.identity import Identity, current_identity
from siteatlas.access.keys import Scope
from siteatlas.access.origin import SAFE_METHODS
from siteatlas.aio import Quota, WaitingQuota
from siteatlas.catalog.access import TAKE, take_values
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.url_lists import MAX_SORTED_AT_ONCE, MAX_SORTED_URLS, count_listings
from siteatlas.errors import (
    ScopeMissing,
    TooManyExports,
    TooManyFailedLogins,
    TooManyQueuedScans,
    TooManyRequests,
    TooManyStreams,
)
from siteatlas.process import connection_limit
from siteatlas.queue.submission import count_pending, lock_pending
from siteatlas.settings import Settings
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import (
    AsyncSession,
    Reader,
    execute_autocommit,
    expensive_turn,
    get_autocommit_session,
    get_session,
)

MINUTE = 60.0
# A request that waits occupies a connection of the service, which cannot be closed for another one.
CONNECTIONS_PER_WAITING_REQUEST = 5
WAITING_PER_USER = 20
# Keys and addresses that a process remembers.
MAX_SUBJECTS = 10_000
# Of all users, in one process; each Parquet export takes about 100 MB.
MAX_EXPORTS = 16
MAX_PARQUET_EXPORTS = 4
EXPORT_WAIT_SECONDS = 60.0
# No index serves them, or they are answered from the changes since.
EXPENSIVE_FILTERS = (
    *("at", "at_seq", "contains", "has", "prefix", "q"),
    *("first_seen_from", "first_seen_to", "lastmod_from", "lastmod_to"),
)
# How long a request waits for its turn to queue scans.
TURN_SECONDS = 10.0

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class AccessMark:
    """The scope that a route needs; None for a public one. FastAPI calls it for every request."""

    scope: Scope | None

    async def __call__(self, request: Request) -> None:
        if self.scope is None:
            return
        identity = await current_identity(request)
        if self.scope not in identity.scopes:
            raise ScopeMissing(
                f"This request needs an access key with the scope {self.scope.value}.",
                scope=self.scope.value,
            )
        limits = await current_limits(request)
        await limits.count_request(identity, is_read=request.method in SAFE_METHODS)


PUBLIC = Depends(AccessMark(None))
READ = Depends(AccessMark(Scope.READ))
SCAN = Depends(AccessMark(Scope.SCAN))
ADMIN = Depends(AccessMark(Scope.ADMIN))


class AccessLimits:
    """The limits of one process."""

    def __init__(self, settings: Settings) -> None:
        self._submits_per_minute = settings.submits_per_minute
        self._failures_per_minute = settings.failed_logins_per_minute
        self._reads = ProcessLimit(settings.reads_per_minute)
        self._refused_until: OrderedDict[str, float] = OrderedDict()
        connections = connection_limit(settings.max_connections)
        self._streams = _waiting_quota(connections)
        waiting = _waiting_quota(connections)
        self._exports = WaitingQuota(MAX_EXPORTS, settings.exports_per_user, waiting)
        self._parquet = WaitingQuota(MAX_PARQUET_EXPORTS, MAX_PARQUET_EXPORTS // 2, waiting)
        self.queue_room = QueueRoom(settings.max_queued_scans, _waiting_quota(connections))

    async def count_request(self, identity: Identity, *, is_read: bool) -> None:
        """Count a request; TooManyRequests if the key has made too many."""
        if identity.is_local or identity.key_id is None:
            return
        if is_read:
            wait = self._reads.take(identity.key_id)
        else:
            wait = await _take(f"submits:{identity.key_id}", self._submits_per_minute)
        if wait:
            raise TooManyRequests(retry_after=wait)

    async def count_failed_login(self, address: str) -> None:
        """Count a wrong key; TooManyFailedLogins if too many came from this address or network.

        While it is refused, nothing more is written for it.
        """
        source = _counted_address(address)
        wait = self._refused_until.get(source, 0.0) - time.monotonic()
        if wait <= 0:
            wait = await _take(f"failed:{source}", self._failures_per_minute)
            if not wait:
                return
            self._remember_refusal(source, time.monotonic() + wait)
        raise TooManyFailedLogins(retry_after=wait)

    def _remember_refusal(self, source: str, until: float) -> None:
        self._refused_until[source] = until
        self._refused_until.move_to_end(source)
        if len(self._refused_until) > MAX_SUBJECTS:
            self._refused_until.popitem(last=False)

    @asynccontextmanager
    async def export(self, identity: Identity, *, parquet: bool = False) -> AsyncIterator[None]:
        """Hold a place for an export or an expensive read; to be entered before a session."""
        async with AsyncExitStack() as held:
            try:
                for quota in (self._parquet, self._exports) if parquet else (self._exports,):
                    place = quota.place(identity.user_id, EXPORT_WAIT_SECONDS)
                    await held.enter_async_context(place)
            except TimeoutError as error:
                raise TooManyExports(retry_after=10.0) from error
            yield

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[None]:
        """Count an event stream while it is open; TooManyStreams if there are too many.

        All keys and sessions of a user are counted together.
        """
        if not self._streams.has_room(identity.quota_user_id):
            raise TooManyStreams(retry_after=10.0)
        with self._streams.taken_by(identity.quota_user_id):
            yield


def _waiting_quota(connections: int) -> Quota:
    # A user gets at most half of it.
    total = max(1, connections // CONNECTIONS_PER_WAITING_REQUEST)
    return Quota(total, per_user=max(1, min(WAITING_PER_USER, total // 2)))


def _counted_address(address: str) -> str:
    """What a client is counted by: its IPv4 address, or the /64 network of its IPv6 address.

    A single machine usually has a whole network of that size.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), 64), strict=False))


async def _take(subject: str, per_minute: int) -> float:
    values = take_values(subject, per_minute)
    row = await execute_autocommit(TAKE, values)
    if row.admitted:
        return 0.0
    return max(float(row.ahead_seconds or 0.0) + float(values["cost_seconds"]) - MINUTE, 0.001)


class ProcessLimit:
    """A limit of requests a minute for each subject, in this process."""

    def __init__(self, per_minute: int) -> None:
        self._cost = MINUTE / per_minute
        self._paid_off_at: OrderedDict[str, float] = OrderedDict()

    def take(self, subject: str) -> float:
        """Count a request; the seconds to wait if it is refused, else 0."""
        now = time.monotonic()
        paid_off_at = max(self._paid_off_at.get(subject, now), now) + self._cost
        if paid_off_at > now + MINUTE:
            return paid_off_at - MINUTE - now
        self._paid_off_at[subject] = paid_off_at
        self._paid_off_at.move_to_end(subject)
        if len(self._paid_off_at) > MAX_SUBJECTS:
            self._paid_off_at.popitem(last=False)
        return 0.0


async def current_limits(request: Request) -> AccessLimits:
    """The limits of the application, for routes that queue scans."""
    limits: AccessLimits = request.app.state.access.limits
    return limits


CurrentLimits = Annotated[AccessLimits, Depends(current_limits)]


async def _expensive_read(request: Request, limits: CurrentLimits) -> AsyncIterator[None]:
    async with limits.export(await current_identity(request)), expensive_turn():
        yield


async def _file(request: Request, limits: CurrentLimits) -> AsyncIterator[None]:
    request.state.is_file = request.query_params.get("format") == "csv"
    if request.state.is_file:
        async with limits.export(await current_identity(request)):
            yield
    else:
        yield


async def _filtered_read(request: Request, limits: CurrentLimits) -> AsyncIterator[None]:
    has_place = getattr(request.state, "is_file", False)
    is_filtered = any(request.query_params.get(name) for name in EXPENSIVE_FILTERS)
    if not has_place and (is_filtered or await _sorts_many(request)):
        async with limits.export(await current_identity(request)), expensive_turn():
            yield
    else:
        yield


async def _sorts_many(request: Request) -> bool:
    """Whether a list of URLs is to be sorted that is too long for a usual read."""
    name = request.path_params.get("domain")
    if name is None or not request.query_params.get("sort"):
        return False
    async with get_session() as session:
        site = await find_domain_view(session, name)
        return MAX_SORTED_AT_ONCE < await count_listings(session, site.id) <= MAX_SORTED_URLS


# For lists that can also be asked for as a file, which counts as an export until it is sent. Comes
# before `FILTERED`, so that one request does not wait for two places.
AS_FILE = Depends(_file, scope="request")
# For routes that are always expensive, and for those that are with a filter or in an order.
EXPENSIVE = Depends(_expensive_read, scope="function")
FILTERED = Depends(_filtered_read, scope="function")


class QueueRoom:
    """The limit of pending jobs per user, and the turns of requests that queue them.

    A request takes its turn before it takes a connection to the database, so that the requests of
    one user never wait with all of them; a lock in the database does the same for other processes.
    A single scan needs no turn unless the queue is almost full. `waiting` limits the requests that
    wait for a turn.
    """

    def __init__(self, max_queued: int, waiting: Quota) -> None:
        self.waiting = waiting
        self._max_queued = max_queued
        # A record lasts as long as the requests that use it.
        self._queues: WeakValueDictionary[UUID, UserQueue] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, identity: Identity, *, is_needed: bool = True) -> AsyncIterator[QueueTurn]:
        """The turn of the sender to queue scans, one request at a time.

        To be taken before a connection. TooManyRequests if too many others are waiting, or if they
        take too long. Nobody waits in local mode, nor for a request that will queue nothing.
        """
        turn = QueueTurn(self, identity)
        try:
            if is_needed and not identity.is_local:
                self._refuse_beyond_waiting(identity.user_id)
                await turn.begin()
            yield turn
        finally:
            turn.end()

    def _refuse_beyond_waiting(self, user_id: UUID) -> None:
        if self.queue_of(user_id).turn.locked() and not self.waiting.has_room(user_id):
            raise _too_many_waiting()

    @asynccontextmanager
    async def single_scan(self, identity: Identity) -> AsyncIterator[None]:
        """Room for one scan, which is stored in this block; TooManyQueuedScans if there is none.

        What other requests of this process are storing counts as pending, which needs no lock. If
        there is room only without it, the scan takes its turn and is counted again.
        """
        async with AsyncExitStack() as held:
            if not identity.is_local:
                await self._hold_room_at_once(identity, held)
            yield

    async def _hold_room_at_once(self, identity: Identity, held: AsyncExitStack) -> None:
        """Count a single scan until `held` ends, without a turn if there is room in any case."""
        queue = self.queue_of(identity.user_id)
        held.enter_context(queue.storing_single_scan())
        # Read before the statement: a scan that is stored meanwhile is counted at least once.
        scans = queue.scans
        async with get_autocommit_session() as session:
            pending = await count_pending(session, identity.user_id, self._max_queued)
        self._refuse_beyond_limit(pending + 1)
        if pending + scans > self._max_queued:
            await held.aclose()
            await self._hold_room_in_turn(identity, queue, held)

    async def _hold_room_in_turn(
        self, identity: Identity, queue: UserQueue, held: AsyncExitStack
    ) -> None:
        """Count a single scan until `held` ends, after all others have been stored."""
        await held.enter_async_context(self.turn(identity))
        await _in_time(queue.wait_for_single_scans())
        held.enter_context(queue.storing(1))
        async with get_autocommit_session() as session:
            await self.require(session, identity.user_id, queue.scans)

    async def require(self, session: Reader, user_id: UUID, scans: int) -> None:
        """Raise TooManyQueuedScans if there is no room for this many more scans of a user."""
        self._refuse_beyond_limit(await count_pending(session, user_id, self._max_queued) + scans)

    def queue_of(self, user_id: UUID) -> UserQueue:
        """The record of a user; it lasts while someone holds it."""
        return self._queues.setdefault(user_id, UserQueue())

    def _refuse_beyond_limit(self, scans: int) -> None:
        if scans > self._max_queued:
            raise TooManyQueuedScans(
                f"At most {self._max_queued:,} scans of a user may be queued. "
                "Wait until some have ended.",
                retry_after=60.0,
            )


class QueueTurn:
    """The turn of a request; it reserves room in each of its transactions that queue scans."""

    def __init__(self, room: QueueRoom, identity: Identity) -> None:
        self._room = room
        self._identity = identity
        self._queue = room.queue_of(identity.user_id)
        self._has_begun = False
        self._reserved = ExitStack()

    async def begin(self) -> None:
        """Wait for the turn; TooManyRequests if that takes too long."""
        with self._room.waiting.taken_by(self._identity.user_id):
            await _in_time(self._queue.turn.acquire())
        self._has_begun = True

    def end(self) -> None:
        """End the turn and what it has reserved."""
        self._reserved.close()
        if self._has_begun:
            self._has_begun = False
            self._queue.turn.release()

    async def each(self, items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
        """The items, with a transaction for each; requests that wait have their turn in between."""
        for number, item in enumerate(items):
            if number and self._has_begun:
                self.end()
                await self.begin()
            yield item

    async def require(self, sites: int) -> None:
        """Raise TooManyQueuedScans if the sender cannot queue this many scans; reserves nothing."""
        if not self._identity.is_local:
            async with get_autocommit_session() as session:
                await self._room.require(session, self._identity.user_id, sites)

    async def reserve(
        self, session: AsyncSession, sites: int = 1, *, owner: UUID | None = None
    ) -> None:
        """Lock the queue of the user until the transaction ends; TooManyQueuedScans if it is full.

        Call it before the transaction locks rows. `owner` is the user whose scans they are, if not
        the sender; those of the schedule, which has no limit, count for the sender.
        """
        if self._identity.is_local:
            return
        user_id = self._identity.user_id if owner in {None, SYSTEM_USER_ID} else owner
        queue = self._room.queue_of(user_id)
        self._reserved.close()
        self._reserved.enter_context(queue.storing(sites))
        await lock_pending(session, user_id)
        await self._room.require(session, user_id, queue.scans)


class UserQueue:
    """What the requests of one user in this process are about to queue."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.scans = 0
        self._single_scans = 0
        self._no_single_scans = asyncio.Event()

    @contextmanager
    def storing(self, scans: int) -> Iterator[None]:
        """Count scans until they are stored, or given up."""
        self.scans += scans
        try:
            yield
        finally:
            self.scans -= scans

    @contextmanager
    def storing_single_scan(self) -> Iterator[None]:
        """Count a scan that is stored without a turn."""
        self._single_scans += 1
        self._no_single_scans.clear()
        try:
            with self.storing(1):
                yield
        finally:
            self._single_scans -= 1
            if not self._single_scans:
                self._no_single_scans.set()

    async def wait_for_single_scans(self) -> None:
        """Wait until no scan is being stored without a turn."""
        while self._single_scans:
            await self._no_single_scans.wait()


async def _in_time(waiting: Coroutine[Any, Any, object]) -> None:
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await waiting
    except TimeoutError as error:
        raise _too_many_waiting() from error


def _too_many_waiting() -> TooManyRequests:
    message = "Too many requests of this user are waiting to queue scans. Try again."
    return TooManyRequests(message, retry_after=5.0)
