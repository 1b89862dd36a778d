"""A document that a reader process reads: its bytes go there, and the results come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from siteatlas.errors import ScanError
from siteatlas.scanner.crawl.reader_messages import (
    DocumentTask,
    MessageKind,
    ReadSummary,
    RemoteResult,
)
from siteatlas.scanner.crawl.reader_pool import ReaderLost
from siteatlas.scanner.reading.tally import ReadResult

# Of up to 256 KiB each; a slow consumer of the scan stops the process with a few of them.
MAX_QUEUED_MESSAGES = 2

SendMessage = Callable[[MessageKind, object, bytes], Awaitable[None]]


class ReceivedMessage(NamedTuple):
    """A message of the reader process about one document."""

    value: RemoteResult | ReadSummary
    data: bytes


class RemoteDocument:
    """One document in a reader process. `summary` has its state, see there."""

    def __init__(self, task: DocumentTask, send: SendMessage) -> None:
        self.summary = ReadSummary()
        self._task = task
        self._send = send
        self._received: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._is_dropped = False

    async def receive(self, message: ReceivedMessage | None) -> None:
        """Take a message of the process, or None if it has ended; waits for the consumer."""
        if not self._is_dropped:
            await self._received.put(message)

    async def results(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[ReadResult, None]:
        """Have the bytes of a body read; the last result, an empty one, comes with the summary.

        Raises the fault of the transfer or of the document after that, or ReaderLost.
        """
        sending = asyncio.create_task(self._send_body(chunks))
        try:
            while isinstance((message := await self._next()).value, RemoteResult):
                yield self._read_result(message.value, message.data)
            assert isinstance(message.value, ReadSummary)
            self.summary = message.value
            yield ReadResult()
            if self.summary.error is not None:
                raise self.summary.error
            fault = await sending
            if fault is not None:
                raise fault
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def drop(self) -> None:
        """Take no more messages, so that none of them holds up those of other documents."""
        self._is_dropped = True
        while not self._received.empty():
            self._received.get_nowait()

    async def _next(self) -> ReceivedMessage:
        """The next message of the reader process; raises ReaderLost if it has ended."""
        message = await self._received.get()
        if message is None:
            raise ReaderLost
        return message

    def _read_result(self, result: RemoteResult, data: bytes) -> ReadResult:
        """A result of the reader process in the form in which `DocumentReader` gives it."""
        self.summary.type = result.type
        encoded = result.entries
        if encoded is not None:
            encoded = encoded._replace(data=data)
        return ReadResult(children=result.children, encoded=encoded)

    async def _send_body(self, chunks: AsyncIterator[bytes]) -> ScanError | None:
        """Send the task and the body to the reader process; returns a fault of the transfer."""
        await self._send(MessageKind.OPEN, self._task, b"")
        try:
            async for chunk in chunks:
                await self._send(MessageKind.DATA, None, chunk)
        except ScanError as fault:
            await self._send(MessageKind.FAULT, None, b"")
            return fault
        await self._send(MessageKind.END, None, b"")
        return None
