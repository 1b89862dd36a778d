"""The client connections of the service: where it listens, how many it takes, which it closes.

A connection that waits for its client is closed for a new one; one that is being served is not.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from siteatlas.api.limits import MAX_HEADER_BYTES, MAX_TARGET_BYTES
from siteatlas.api.problems import problem
from siteatlas.errors import (
    BindRefused,
    ConfigurationError,
    HeadersTooLarge,
    HeadersTooSlow,
    PortTaken,
    RequestMalformed,
    SiteatlasError,
    TooManyConnections,
)
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


MAX_HEAD_BYTES = MAX_HEADER_BYTES + MAX_TARGET_BYTES
MAX_REST_BYTES = 1024 * 1024
HEALTH = "/health"

refusals = Throttle()


class Awaited(Enum):
    """What the client has to send next."""

    HEAD = auto()
    BODY = auto()
    REST = auto()  # of a request that has its response already


class HintingConnection(h11.Connection):
    """Remembers which status h11 suggests for what it could not read."""

    status_hint = 400

    def next_event(self) -> Any:
        """Parse the client's next HTTP event; if it is malformed, keep the status h11 suggests."""
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            self.status_hint = error.error_status_hint
            raise


class HttpProtocol(H11Protocol):
    """A connection that is closed when its client is too slow, and that can be dropped."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        room: ConnectionRegistry,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = HintingConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._room = room
        self._awaited: Awaited | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._rest_bytes = 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new client connection; refuse it if the web server has no room."""
        super().connection_made(transport)
        place = self._room.enter(self)
        if place is Admission.NONE:
            self._refuse(TooManyConnections())
            transport.close()
            return
        if place is Admission.HEALTH_ONLY:
            self.app = self._serve_health
        self._set_expected_input(Awaited.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove a closed client connection from the registry and cancel its timers."""
        self._room.leave(self)
        self._cancel_request_timer()
        self._cancel_response_timer()
        super().connection_lost(exc)

    def drop(self) -> None:
        """End the connection at once to make room for another."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the HTTP client; discard what it sends after a refusal."""
        if self._awaited is Awaited.REST:
            self._rest_bytes += len(data)
            if self._rest_bytes > MAX_REST_BYTES:
                self.transport.abort()
                return
        if self._is_refused:
            return
        super().data_received(data)
        self._set_expected_input(self._expected_input())

    def on_response_complete(self) -> None:
        """Start the timer for reading the response; wait for the client's next input."""
        super().on_response_complete()
        self._start_response_timer()
        due = self._expected_input()
        if due is Awaited.HEAD:
            # The next request may take its time to begin; uvicorn's own timer runs.
            self._set_expected_input(None)
            self._room.waits_for_request(self)
        else:
            self._set_expected_input(due)

    def pause_writing(self) -> None:
        """Start the response timer: the HTTP client reads more slowly than the server writes."""
        super().pause_writing()
        self._start_response_timer()

    def resume_writing(self) -> None:
        """Cancel the response timer: the HTTP client has caught up."""
        super().resume_writing()
        self._cancel_response_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message
        """Respond to what h11 could not parse."""
        assert isinstance(self.conn, HintingConnection)
        too_large = self.conn.status_hint == HeadersTooLarge.http_status
        self._refuse(HeadersTooLarge() if too_large else RequestMalformed())

    def _should_upgrade(self) -> bool:
        """Never: a request to speak another protocol is served as the HTTP/1.1 that it is."""
        return False

    def _expected_input(self) -> Awaited | None:
        """What the client of this HTTP connection has to send next; None if nothing."""
        if self.transport.is_closing():
            return None
        if self._is_refused:
            return Awaited.REST
        if self.conn.their_state is h11.IDLE:
            return Awaited.HEAD
        if self.conn.their_state is not h11.SEND_BODY:
            return None
        return Awaited.REST if self.cycle.response_complete else Awaited.BODY

    def _set_expected_input(self, awaited: Awaited | None) -> None:
        """Start the timer for what the client has to send; sending a part does not extend it."""
        if awaited is None:
            self._room.has_request(self)
        else:
            self._room.waits_for_request(self)
        if awaited is self._awaited:
            return
        self._cancel_request_timer()
        self._awaited = awaited
        if awaited is not None:
            self._deadline = self.loop.call_later(
                self._request_timeout(awaited), self._on_request_timeout
            )

    def _request_timeout(self, awaited: Awaited) -> float:
        limits = self._room.limits
        return {
            Awaited.HEAD: limits.head_seconds,
            Awaited.BODY: limits.body_seconds,
            Awaited.REST: limits.rest_seconds,
        }[awaited]

    def _cancel_request_timer(self) -> None:
        self._awaited = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_request_timeout(self) -> None:
        begun = bool(self.conn.trailing_data[0])
        if self._awaited is Awaited.HEAD and begun:
            self._refuse(HeadersTooSlow())
        else:
            self.transport.close()

    def _start_response_timer(self) -> None:
        self._cancel_response_timer()
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            self._room.waits_for_reader(self)
            seconds = self._room.limits.stall_seconds
            self._stall = self.loop.call_later(seconds, self._on_unread_response, unsent)

    def _on_unread_response(self, unsent: int) -> None:
        if self.transport.get_write_buffer_size() < unsent:
            self._start_response_timer()
        else:
            self.transport.abort()

    def _cancel_response_timer(self) -> None:
        self._room.has_reader(self)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _refuse(self, error: SiteatlasError) -> None:
        """Respond to what never becomes a request, and discard input for a moment.

        A connection that is closed with unread bytes is reset, and the response is lost.
        """
        if (left_out := refusals.admit()) is not None:
            log.info("request_refused", error=error.code, left_out=left_out)
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = problem({}, error, headers={"Connection": "close"})
            reason = HTTPStatus(answer.status_code).phrase.encode()
            head = h11.Response(
                status_code=answer.status_code, headers=answer.raw_headers, reason=reason
            )
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write_eof()
            self._is_refused = True
            self._leave_alone()
            self._set_expected_input(Awaited.REST)
        else:
            self.transport.close()

    def _leave_alone(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    async def _serve_health(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == HEALTH:
            await self.config.loaded_app(scope, receive, send)
        else:
            answer = problem(scope, TooManyConnections(), headers={"Connection": "close"})
            await answer(scope, receive, send)


BACKLOG = 2048
ACCEPT_FAILED = "socket.accept() out of system resource"


CREATE_KEY = "siteatlas keys create --name admin --scope admin"
NO_ADMIN_KEY = "No active key has the scope admin."
CREATE_ADMIN_KEY = f"Create one on this machine: {CREATE_KEY}"
LOOPBACK_NAMES = {"localhost": "127.0.0.1"}
IPV4, IPV6 = 4, 6
LOOPBACK = {IPV4: "127.0.0.1", IPV6: "::1"}
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 what `*` stands for


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """A listening socket on an address of this machine; port 0 picks a free port.

    `option` is what PortTaken names as the way to choose another port.
    """
    return _listener(_bind_address(host), host, port, option)


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The socket that the settings name; a Unix socket is removed at the end."""
    path = settings.socket
    with listen(settings.host, settings.port) if path is None else _unix_listener(path) as listener:
        try:
            yield listener
        finally:
            if path is not None:
                path.unlink(missing_ok=True)


def _unix_listener(path: Path) -> socket.socket:
    """A Unix socket that its owner and group may connect to."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o117)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            if path.is_socket() and probe.connect_ex(str(path)):  # of a service that was killed
                path.unlink()
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"Cannot listen on {path}: {error.strerror or error}.") from error
    finally:
        os.umask(before)
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; any name but `localhost` counts as public."""
    try:
        return ipaddress.ip_address(_plain_address(host)).is_loopback
    except ValueError:
        return False


def _plain_address(host: str) -> str:
    return LOOPBACK_NAMES.get(host.lower(), ANY_ADDRESS if host == "*" else host).strip("[]")


def _bind_address(host: str) -> str:
    """The address to listen on; names are not resolved, because they may come to mean another."""
    try:
        return str(ipaddress.ip_address(_plain_address(host)))
    except ValueError as error:
        raise BindRefused(
            f"{host} is not an address to listen on. Use 127.0.0.1 or, with an access key, another "
            f"address of this machine, or 0.0.0.0 for all of them. Create a key with: {CREATE_KEY}"
        ) from error


def _listener(address: str, host: str, port: int, option: str) -> socket.socket:
    """Open a listening socket of the service or a worker; errors show `host` and `option`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"{host}:{port} is already in use by another program."
            raise PortTaken(message, option=option) from error
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    # Accepted sockets inherit it; asyncio does not set it on a socket that it did not make, and
    # without it each answer waits for the client's delayed acknowledgement, some 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextmanager
def quiet_accept_faults() -> Iterator[None]:
    """While the process has no free file descriptors, log one line per second.

    asyncio reports every connection that it cannot accept, with a traceback, and tries again.
    """
    loop = asyncio.get_running_loop()
    throttle = Throttle(burst=1)

    def log_accept_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler of the web server's event loop: limits the log of failed accepts."""
        if context.get("message") != ACCEPT_FAILED:
            loop.default_exception_handler(context)
        elif (left_out := throttle.admit()) is not None:
            log.error("accept_failed", reason=context["exception"], left_out=left_out)

    earlier = loop.get_exception_handler()
    loop.set_exception_handler(log_accept_failure)
    try:
        yield
    finally:
        loop.set_exception_handler(earlier)


def local_url(host: str, port: int) -> str:
    """The address at which this machine reaches a service that listens on `host`."""
    address = ipaddress.ip_address(_bind_address(host))
    if address.is_unspecified:
        address = ipaddress.ip_address(LOOPBACK[address.version])
    return f"http://[{address}]:{port}" if address.version == IPV6 else f"http://{address}:{port}"


def base_url(listener: socket.socket) -> str:
    """The address to open in a browser; of a Unix socket, its path."""
    if listener.family is socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
