"""A reader process as the scan sees it: its program, its socket, and the documents it reads.

`reader_pool.py` imports this with the first process that it starts.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Self

from siteatlas.logs import get_logger
from siteatlas.scanner.crawl.reader_messages import (
    HEAD,
    DocumentTask,
    MessageKind,
    message,
    read_head,
    read_value,
)
from siteatlas.scanner.crawl.remote_document import ReceivedMessage, RemoteDocument

log = get_logger("scanner")

MIB = 1024 * 1024
PROGRAM = "siteatlas.scanner.crawl.reader_process"
SOCKET_BUFFER_BYTES = MIB
STREAM_BUFFER_BYTES = MIB // 2


class ReaderProcess:
    """A running reader process and the documents that it reads."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        incoming: asyncio.StreamReader,
        outgoing: asyncio.StreamWriter,
    ) -> None:
        self.is_lost = False
        self._process = process
        self._incoming = incoming
        self._outgoing = outgoing
        self._documents: dict[int, RemoteDocument] = {}
        self._number = 0
        self._receiving = asyncio.create_task(self._receive_all())

    @classmethod
    async def start(cls) -> Self:
        """Start a process that ends when its socket is closed, even if this process is killed."""
        ours, theirs = socket.socketpair()
        with theirs:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            try:
                process = _start_program(theirs.fileno())
            except OSError:
                ours.close()
                raise
        streams = await asyncio.open_connection(sock=ours, limit=STREAM_BUFFER_BYTES)
        return cls(process, *streams)

    @property
    def document_count(self) -> int:
        """How many documents the process reads at the moment."""
        return len(self._documents)

    @asynccontextmanager
    async def document(self, task: DocumentTask) -> AsyncIterator[RemoteDocument]:
        """A document for the process to read while the block runs."""
        self._number += 1
        number = self._number
        document = self._documents[number] = RemoteDocument(task, partial(self._send, number))
        try:
            yield document
        finally:
            del self._documents[number]
            document.drop()
            self._write(number, MessageKind.DROP)

    async def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._receiving.cancel()
        self._outgoing.close()
        with suppress(OSError):
            await self._outgoing.wait_closed()

    async def _send(self, number: int, kind: MessageKind, value: object, data: bytes) -> None:
        """Send a message to the reader process; waits while it is behind.

        One that cannot be sent is no error: `_receive_all` notices a lost process.
        """
        self._write(number, kind, value, data)
        with suppress(OSError):
            await self._outgoing.drain()

    def _write(
        self, number: int, kind: MessageKind, value: object = None, data: bytes = b""
    ) -> None:
        """Send a message to the reader process without waiting."""
        if not self.is_lost:
            self._outgoing.write(message(number, kind, value, data))

    async def _receive_all(self) -> None:
        """Pass on the messages of the reader process to its documents until it ends."""
        try:
            while True:
                await self._receive_message()
        except (OSError, EOFError):
            self.is_lost = True
            log.debug("reader_process_lost", pid=self._process.pid)
        for document in [*self._documents.values()]:
            await document.receive(None)

    async def _receive_message(self) -> None:
        """Pass on one message of the reader process; one for a dropped document is ignored."""
        head = read_head(await self._incoming.readexactly(HEAD.size))
        value = read_value(await self._incoming.readexactly(head.value_size))
        data = await self._incoming.readexactly(head.data_size)
        document = self._documents.get(head.document)
        if document is not None:
            await document.receive(ReceivedMessage(value, data))


def _start_program(descriptor: int) -> subprocess.Popen[bytes]:
    """Start the program of a reader process, with one end of its socket."""
    return subprocess.Popen(
        # -P: no module is imported from the current directory.
        [sys.executable, "-P", "-m", PROGRAM, str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # An interrupt on the terminal is for the first process, which then ends this one.
        process_group=0,
    )
