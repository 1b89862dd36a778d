"""Limits on what a site sends around a document: interim responses, headers, chunk framing.

aiohttp parses bytes as soon as they arrive, before we can apply a limit. Therefore the connection
itself accepts little at a time and aborts a response that consists of overhead only. The bytes of
the document are counted in `response.py`.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from siteatlas.aio.loop_local import LoopLocal
from siteatlas.errors import HttpProtocolError

MAX_INTERIM_ANSWERS = 8
MAX_BYTES_BEFORE_HEAD = 128 * 1024
FREE_FRAMING_BYTES = 16 * 1024
SMALL_READ = 16 * 1024
LARGE_READ = 64 * 1024
_FINE_FRAMING = 16
# One for all connections of a loop, most of which wait: what a read puts there is copied before
# the loop reads from another connection.
_receive_buffers = LoopLocal(lambda: memoryview(bytearray(LARGE_READ)))


class BoundedHandler(ResponseHandler, asyncio.BufferedProtocol):
    """A connection of aiohttp that is aborted when a site sends too much besides the document.

    Until the head is complete, and while chunks are small, little is read at a time: parsing a
    read of tiny chunks takes a hundred times as long as parsing one of plain body.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._space = _receive_buffers.get()
        self._reset_counts()

    def _reset_counts(self) -> None:
        """Start counting the bytes of a new HTTP response on this connection."""
        self._answers = 0
        self._wire_bytes = 0
        self._head_bytes = 0
        self._has_head = False
        self._is_chunked = False
        self._body: aiohttp.StreamReader | None = None

    def set_response_params(self, **options: Any) -> None:
        """Prepare for the response to a new request; called by aiohttp."""
        self._reset_counts()
        super().set_response_params(**options)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """The buffer for the next bytes of a response; small while it may be all overhead."""
        return self._space if self._is_mostly_body else self._space[:SMALL_READ]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that the transport has written to the buffer."""
        self.data_received(bytes(self._space[:nbytes]))

    def feed_data(self, data: tuple[Any, Any], size: int = 0) -> None:
        """Count a parsed response, interim or final; called by aiohttp."""
        message, body = data
        self._answers += 1
        self._head_bytes += sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
        if not self._has_head and message.code >= 200:  # noqa: PLR2004
            self._has_head = True
            self._is_chunked = message.chunked
            self._body = body
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, then abort the response if it has too much overhead."""
        super().data_received(data)
        self._wire_bytes += len(data)
        reason = self._overhead_fault()
        if reason is not None and self.transport is not None:
            self._abort_response(HttpProtocolError(reason))

    @property
    def _framing_bytes(self) -> int:
        """Bytes received besides headers and body; some may not have been parsed yet."""
        body_bytes = self._body.total_bytes if self._body is not None else 0
        return self._wire_bytes - self._head_bytes - body_bytes

    @property
    def _is_mostly_body(self) -> bool:
        """Whether the response is mostly body, so that a large read is parsed quickly."""
        if not self._has_head:
            return False
        if not self._is_chunked:
            return True
        enough = self._wire_bytes >= LARGE_READ
        return enough and self._framing_bytes * _FINE_FRAMING <= self._wire_bytes

    def _overhead_fault(self) -> str | None:
        """Why the HTTP response is refused: interim responses, headers or tiny chunks; or None."""
        if self._answers > MAX_INTERIM_ANSWERS + 1:
            return "The site sent too many interim responses."
        if not self._has_head:
            too_long = self._wire_bytes > MAX_BYTES_BEFORE_HEAD
            return "The response headers are too long." if too_long else None
        framing = self._framing_bytes
        if self._is_chunked and framing > FREE_FRAMING_BYTES + (self._wire_bytes - framing) // 2:
            return "The site sends the document in chunks of a few bytes."
        return None

    def _abort_response(self, error: HttpProtocolError) -> None:
        """Close the connection to the site; the reader of the response gets the error."""
        transport, body = self.transport, self._body
        self._buffer.clear()
        self.set_exception(error)
        if body is not None and not body.is_eof():
            body.set_exception(error)
        # Otherwise the end of the connection would take the place of the reason for it.
        self._payload = None
        if transport is not None:
            transport.abort()


class BoundedConnector(aiohttp.TCPConnector):
    """The connector of the HTTP client; limits what its connections receive."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = functools.partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]
