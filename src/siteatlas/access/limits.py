"""Limits of access: requests per key, failed logins per address, streams per user.

Requests that change something and failed logins are counted in PostgreSQL, across all processes;
reads are counted per process, because a statement for each would double their cost. In local mode,
only the total number of event streams is limited. `queue_room` limits the scans of a user.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Annotated

from fastapi import Depends, Request

from siteatlas.access.identity import Identity
from siteatlas.access.queue_room import QueueRoom
from siteatlas.aio.quota import Quota
from siteatlas.errors import (
    TooManyFailedLogins,
    TooManyRequests,
    TooManyStreams,
)
from siteatlas.process import connection_limit
from siteatlas.settings import Settings
from siteatlas.storage.session import execute_autocommit
from siteatlas.storage.statements.rate_limits import TAKE, take_values

MINUTE = 60.0
# A request that waits occupies a connection of the service, which cannot be closed for another one.
CONNECTIONS_PER_WAITING_REQUEST = 5
WAITING_PER_USER = 20
STREAM_RETRY_SECONDS = 10.0
MAX_SUBJECTS = 10_000
IPV6_PREFIX_LENGTH = 64


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


class AccessLimits:
    """The limits of one process."""

    def __init__(self, settings: Settings) -> None:
        self._submits_per_minute = settings.submits_per_minute
        self._failures_per_minute = settings.failed_logins_per_minute
        self._reads = ProcessLimit(settings.reads_per_minute)
        self._refused_until: OrderedDict[str, float] = OrderedDict()
        connections = connection_limit(settings.max_connections)
        self._streams = _waiting_quota(connections)
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
        """Keep in mind until when an address or network is refused."""
        self._refused_until[source] = until
        self._refused_until.move_to_end(source)
        if len(self._refused_until) > MAX_SUBJECTS:
            self._refused_until.popitem(last=False)

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[None]:
        """Count an event stream while it is open; TooManyStreams if there are too many.

        All keys and sessions of a user are counted together.
        """
        if not self._streams.has_room(identity.quota_user_id):
            raise TooManyStreams(retry_after=STREAM_RETRY_SECONDS)
        with self._streams.taken_by(identity.quota_user_id):
            yield


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
    return str(IPv6Network((int(parsed), IPV6_PREFIX_LENGTH), strict=False))


def _waiting_quota(connections: int) -> Quota:
    """The quota of requests of one kind that wait; a user gets at most half of it."""
    total = max(1, connections // CONNECTIONS_PER_WAITING_REQUEST)
    return Quota(total, per_user=max(1, min(WAITING_PER_USER, total // 2)))


async def current_limits(request: Request) -> AccessLimits:
    """The limits of the application, for routes that queue scans."""
    limits: AccessLimits = request.app.state.access.limits
    return limits


CurrentLimits = Annotated[AccessLimits, Depends(current_limits)]


async def _take(subject: str, per_minute: int) -> float:
    """Count a request in the database; the seconds to wait if it is refused, else 0."""
    values = take_values(subject, per_minute)
    row = await execute_autocommit(TAKE, values)
    if row.admitted:
        return 0.0
    return max(float(row.ahead_seconds or 0.0) + float(values["cost_seconds"]) - MINUTE, 0.001)
