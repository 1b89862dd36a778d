"""The client connections of the service: their number, and which one to close for a new one.

Knows nothing about HTTP; `http_protocol` reports which connections are waiting for their client.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from siteatlas.logs import Throttle, get_logger
from siteatlas.process import connection_limit
from siteatlas.settings import Settings

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections, and how long the server waits for each.

    `reserve` connections beyond `connections` are served `/health` only. After an early response
    the rest of a body is read for `rest_seconds`, so that the client can read the response.
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
        return cls(connections=connection_limit(settings.max_connections))


class Admission(Enum):
    """What a new connection gets."""

    FULL = auto()
    HEALTH_ONLY = auto()
    NONE = auto()


class Droppable(Protocol):
    """A connection that can be ended at once."""

    def drop(self) -> None:
        """Close the client connection at once."""


class ConnectionRegistry:
    """The open connections of one server.

    A connection that waits for its client (for a request, the rest of one, or to read a response)
    can be dropped; one whose request is being served cannot. So clients that are merely slow never
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
        """Register a new connection; if there is no room, the longest waiting one is dropped."""
        if len(self._open) >= self.limits.connections:
            self._drop_longest_waiting()
        if len(self._open) >= self.limits.connections + self.limits.reserve:
            return Admission.NONE
        self._open.add(connection)
        if len(self._open) > self.limits.connections:
            return Admission.HEALTH_ONLY
        return Admission.FULL

    def leave(self, connection: Droppable) -> None:
        """Remove a connection that is closed."""
        self._open.discard(connection)
        self.has_request(connection)
        self.has_reader(connection)

    def waits_for_request(self, connection: Droppable) -> None:
        """Record that the client has yet to send a request or the rest of one."""
        if connection in self._open:
            self._sending.setdefault(connection)

    def has_request(self, connection: Droppable) -> None:
        """Record that the request is complete and being served."""
        self._sending.pop(connection, None)

    def waits_for_reader(self, connection: Droppable) -> None:
        """Record that the client has yet to read the response."""
        if connection in self._open:
            self._taking.setdefault(connection)

    def has_reader(self, connection: Droppable) -> None:
        """Record that the client has read what there was of the response."""
        self._taking.pop(connection, None)

    def _drop_longest_waiting(self) -> None:
        """Close the client connection that has waited longest, to make room in the web server."""
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
