"""A minimal HTTP server for the metrics and health of a worker: a few pages, GET only.

One request per connection, limited in bytes, time and number, so that clients cannot slow down the
process or exhaust its memory. The caller supplies the pages.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 8 * 1024
CONNECTION_SECONDS = 5.0
MAX_CONNECTIONS = 16
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """A response of the server."""

    text: str
    media_type: str = PLAIN
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


@asynccontextmanager
async def serve_pages(listener: socket.socket, pages: Pages) -> AsyncIterator[None]:
    """Serve `pages` on `listener` while the block runs; the listener is closed at its end."""
    visits: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to a worker's metrics port; close it if there are too many."""
        task = asyncio.current_task()
        assert task is not None
        visits.add(task)
        try:
            if len(visits) <= MAX_CONNECTIONS:
                await _answer_in_time(reader, writer, pages)
        finally:
            visits.discard(task)
            writer.close()

    server = await asyncio.start_server(visit, sock=listener, limit=MAX_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in visits:
            task.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


async def _answer_in_time(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages
) -> None:
    """Read a request to a worker's health and metrics server and respond, within a timeout."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(CONNECTION_SECONDS):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                head = b""
            writer.write(_probe_response(head, pages))
            await writer.drain()


def _probe_response(head: bytes, pages: Pages) -> bytes:
    """The HTTP response of a worker's health and metrics server to a request head."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    method = words[0]
    page = _page(words, pages)
    body = page.text.encode()
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.media_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


def _page(words: list[str], pages: Pages) -> Page:
    """The health or metrics page for a request line, or an error page."""
    match words:
        case ["GET" | "HEAD", target, "HTTP/1.0" | "HTTP/1.1"]:
            found = pages.get(target.partition("?")[0])
            return found() if found else _error_page(HTTPStatus.NOT_FOUND)
        case [_, _, "HTTP/1.0" | "HTTP/1.1"]:
            return _error_page(HTTPStatus.METHOD_NOT_ALLOWED)
        case _:
            return _error_page(HTTPStatus.BAD_REQUEST)


def _error_page(status: HTTPStatus) -> Page:
    """The error page of a worker's health and metrics server."""
    return Page(f"{status.phrase}\n", status=status)
