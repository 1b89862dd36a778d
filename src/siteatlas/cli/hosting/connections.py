"""The client connections of the service: their number, and which one to close for a new one.

Knows nothing about HTTP; `http_protocol` reports which connections are waiting for their client.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from siteatlas.logs import Throttle, get_logger
from siteatlas.settings import Settings

# Sites, the database and files need the rest.
FILES_SHARE = 2

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections, and how long each may keep us waiting.

    `reserve` connections beyond `connections` are served `/health` only. After an early answer
    the rest of a body is read for `rest_seconds`, so that the client gets to see the answer.
    """

    connections: int = 500
    reserve: int = 32
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    rest_seconds: float = 2.0
    stall_seconds: float = 30.0

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """The limits of the settings, within what the system lets this process open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = settings.max_connections
        if files != resource.RLIM_INFINITY:
            limit = min(limit, files // FILES_SHARE)
        return cls(connections=max(1, limit))


class Admission(Enum):
    """What a new connection gets."""

    FULL = auto()
    HEALTH_ONLY = auto()
    NONE = auto()


class Droppable(Protocol):
    """A connection that can be ended at once."""

    def drop(self) -> None: ...


class ConnectionRegistry:
    """The open connections of one server.

    A connection that waits for its client (for a request, the rest of one, or to take an answer)
    can be dropped; one that has a request in work cannot. So clients that are merely slow never
    keep others out.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[Droppable] = set()
        # Dictionaries for their order: who has waited longest comes first.
        self._sending: dict[Droppable, None] = {}
        self._taking: dict[Droppable, None] = {}
        self._throttle = Throttle(burst=1)

    def enter(self, connection: Droppable) -> Admission:
        """Take a new connection in; when there is no room, the longest waiting one is dropped."""
        if len(self._open) >= self.limits.connections:
            self._make_room()
        if len(self._open) >= self.limits.connections + self.limits.reserve:
            return Admission.NONE
        self._open.add(connection)
        if len(self._open) > self.limits.connections:
            return Admission.HEALTH_ONLY
        return Admission.FULL

    def leave(self, connection: Droppable) -> None:
        """The connection is gone."""
        self._open.discard(connection)
        self.has_request(connection)
        self.has_reader(connection)

    def waits_for_request(self, connection: Droppable) -> None:
        """The client has to send a request or the rest of one."""
        if connection in self._open:
            self._sending.setdefault(connection)

    def has_request(self, connection: Droppable) -> None:
        """The request is complete, and in work."""
        self._sending.pop(connection, None)

    def waits_for_reader(self, connection: Droppable) -> None:
        """The client has to take the answer."""
        if connection in self._open:
            self._taking.setdefault(connection)

    def has_reader(self, connection: Droppable) -> None:
        """The client has taken what there was of the answer."""
        self._taking.pop(connection, None)

    def _make_room(self) -> None:
        longest = next(iter(self._sending), None) or next(iter(self._taking), None)
        if (left_out := self._throttle.admit()) is not None:
            log.warning(
                "connections_exhausted",
                limit=self.limits.connections,
                dropped=longest is not None,
                left_out=left_out,
            )
        if longest is not None:
            self.leave(longest)
            longest.drop()
