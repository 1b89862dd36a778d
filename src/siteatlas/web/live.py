"""The event stream of the pages: one poll per process tells all open tabs that something changed.

A tab gets no content, only a mark; its panels then fetch themselves again. Nothing is written for
it, and nothing is polled while no tab is open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from siteatlas import __version__
from siteatlas.access.authentication import is_still_admitted
from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.limits import READ, CurrentLimits
from siteatlas.catalog.overview import read_activity
from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.storage.session import get_autocommit_session

POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

log = get_logger("web")
router = APIRouter(include_in_schema=False)


class Broadcaster:
    """Polls the database while there are listeners, and wakes them when the mark changes."""

    def __init__(self) -> None:
        self._mark = ""
        self._changed = asyncio.Event()
        self._listeners = 0
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    async def listen(self) -> AsyncGenerator[str, None]:
        """The mark now, then each new one; an empty text when nothing changed for a while.

        A listener that is slow misses marks in between, but never the last one.
        """
        self._begin()
        sent: str | None = None
        try:
            while not self._closed:
                if self._mark != sent:
                    sent = self._mark
                    yield sent
                elif not await self._change_within(KEEP_ALIVE_SECONDS):
                    yield ""
        finally:
            self._end()

    def close(self) -> None:
        """End all streams, now and later: the service stops."""
        self._closed = True
        self._wake_all()

    def _begin(self) -> None:
        self._listeners += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="live updates")

    def _end(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _change_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _poll(self) -> None:
        """Read the mark every second; no error is a reason to stop."""
        while True:
            try:
                await self._read_mark()
            except SiteatlasError as error:
                log.warning("live_poll_failed", error_code=error.code)
            except Exception:
                log.exception("live_poll_failed", error_code=SiteatlasError.code)
            await asyncio.sleep(POLL_SECONDS)

    async def _read_mark(self) -> None:
        async with get_autocommit_session() as session:
            mark = (await read_activity(session)).mark
        if mark != self._mark:
            self._mark = mark
            self._wake_all()

    def _wake_all(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _count_stream(identity: CurrentIdentity, limits: CurrentLimits) -> AsyncIterator[None]:
    with limits.stream(identity):
        yield


@router.get("/events", dependencies=[READ, Depends(_count_stream, scope="request")])
async def stream_events(request: Request, identity: CurrentIdentity) -> StreamingResponse:
    """The stream of one tab."""
    is_admitted = partial(is_still_admitted, identity, request.app.state.access)
    messages = _messages(request.app.state.broadcaster, is_admitted)
    return StreamingResponse(messages, media_type="text/event-stream", headers=HEADERS)


async def _messages(
    broadcaster: Broadcaster, is_admitted: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Marks as messages; a comment keeps the connection open when nothing changed.

    Ends when the key or session of the reader has ended, at most two keep-alive intervals later.
    """
    yield f"event: hello\ndata: {__version__}\n\n"
    check_at = time.monotonic() + KEEP_ALIVE_SECONDS
    async with aclosing(broadcaster.listen()) as marks:
        async for mark in marks:
            if time.monotonic() >= check_at:
                if not await is_admitted():
                    return
                check_at = time.monotonic() + KEEP_ALIVE_SECONDS
            yield f"event: changed\nid: {mark}\ndata: {mark}\n\n" if mark else ": still here\n\n"
