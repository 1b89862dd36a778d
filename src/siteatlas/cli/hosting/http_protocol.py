"""One client connection: uvicorn's HTTP/1.1 protocol with timeouts and problem details.

uvicorn waits forever for a request head, for the rest of a body that was already answered, and for
a client to read its response. The number of connections is limited by `connections`.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from siteatlas.api.head_limits import MAX_HEADER_BYTES, MAX_TARGET_BYTES
from siteatlas.api.problems import problem
from siteatlas.cli.hosting.connections import Admission, ConnectionRegistry
from siteatlas.errors import (
    HeadersTooLarge,
    HeadersTooSlow,
    RequestMalformed,
    SiteatlasError,
    TooManyConnections,
)
from siteatlas.logs import Throttle, get_logger

MAX_HEAD_BYTES = MAX_HEADER_BYTES + MAX_TARGET_BYTES
MAX_REST_BYTES = 1024 * 1024
HEALTH = "/health"

log = get_logger("serve")
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
        """How many seconds the HTTP client has to send this part of its request."""
        limits = self._room.limits
        return {
            Awaited.HEAD: limits.head_seconds,
            Awaited.BODY: limits.body_seconds,
            Awaited.REST: limits.rest_seconds,
        }[awaited]

    def _cancel_request_timer(self) -> None:
        """Cancel the timer for what the HTTP client has to send."""
        self._awaited = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_request_timeout(self) -> None:
        """Refuse or close a connection whose HTTP client did not send its request in time."""
        begun = bool(self.conn.trailing_data[0])
        if self._awaited is Awaited.HEAD and begun:
            self._refuse(HeadersTooSlow())
        else:
            self.transport.close()

    def _start_response_timer(self) -> None:
        """Start the timer for a client that reads nothing of its response."""
        self._cancel_response_timer()
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            self._room.waits_for_reader(self)
            seconds = self._room.limits.stall_seconds
            self._stall = self.loop.call_later(seconds, self._on_unread_response, unsent)

    def _on_unread_response(self, unsent: int) -> None:
        """Abort the connection if its HTTP client has read nothing since the timer started."""
        if self.transport.get_write_buffer_size() < unsent:
            self._start_response_timer()
        else:
            self.transport.abort()

    def _cancel_response_timer(self) -> None:
        """Cancel the timer for an HTTP client that does not read its response."""
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
        """Let the application, if it still reads this request, see that nothing more comes."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    async def _serve_health(self, scope: Any, receive: Any, send: Any) -> None:
        """The application of a connection in the reserve."""
        if scope["path"] == HEALTH:
            await self.config.loaded_app(scope, receive, send)
        else:
            answer = problem(scope, TooManyConnections(), headers={"Connection": "close"})
            await answer(scope, receive, send)
