"""Holds the body of a response until its hash shows whether the document is unchanged.

If it is not, the body may be held until the known entries of the document are loaded.

The bytes are held as received: in memory up to a limit for each document and one for all documents
of the process, then in a temporary file. A body that differs, or that no limit has room for, is
handed on to be read; no bytes are requested twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from tempfile import TemporaryFile
from threading import Lock
from typing import IO

from siteatlas.aio.loop_local import LoopLocal
from siteatlas.errors import ScanError
from siteatlas.logs import get_logger
from siteatlas.scanner.reading.content_hash import WireHash

log = get_logger("scanner")

MIB = 1024 * 1024
FILE_CHUNK_BYTES = MIB
SMALL_CHUNK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How many bytes may be held: in memory for one body and for all, and in all files."""

    document_memory: int = 16 * MIB
    process_memory: int = 64 * MIB
    process_files: int = 512 * MIB


@dataclass(slots=True)
class HeldBytes:
    """How many bytes all held bodies of a process have, in memory and in files."""

    memory: int = 0
    files: int = 0


_held_bytes = LoopLocal(HeldBytes)


def held_bytes() -> HeldBytes:
    """The count of the running event loop; a process that scans has one."""
    return _held_bytes.get()


class HeldBody:
    """One body: `matches` and `receive` hold it, `chunks` hands it on.

    `release` drops it and must always be called.

    A fault while it is received is raised by `chunks`, after the bytes before it.
    """

    def __init__(
        self,
        incoming: AsyncIterator[bytes],
        charset: str | None = None,
        limits: HoldLimits = HoldLimits(),
    ) -> None:
        self._incoming = incoming
        self._limits = limits
        self._hash = WireHash(charset)
        self._chunks: deque[bytes] = deque()
        self._memory_bytes = 0
        self._file: _HeldFile | None = None
        self._file_bytes = 0
        self._fault: ScanError | None = None
        self.size = 0

    async def matches(self, wire_hash: str, length: int | None = None) -> bool:
        """Whether the whole body has this hash; returns False as soon as that cannot be."""
        return await self.receive(length) and self._hash.hexdigest() == wire_hash

    async def receive(self, max_bytes: int | None = None) -> bool:
        """Receive the body and hold it; False if it is longer, does not fit, or has a fault."""
        try:
            async for chunk in self._incoming:
                self._hash.update(chunk)
                self.size += len(chunk)
                too_long = max_bytes is not None and self.size > max_bytes
                if not await self._hold(chunk) or too_long:
                    return False
        except ScanError as fault:
            self._fault = fault
        return self._fault is None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes that are held, then those that have not arrived yet."""
        position = 0
        while self._file is not None and position < self._file_bytes:
            size = min(FILE_CHUNK_BYTES, self._file_bytes - position)
            chunk = await asyncio.to_thread(self._file.read, position, size)
            position += len(chunk)
            yield chunk
        while self._chunks:
            chunk = self._chunks.popleft()
            self._count_memory(-len(chunk))
            yield chunk
        if self._fault is not None:
            raise self._fault
        async for chunk in self._incoming:
            yield chunk

    def release(self) -> None:
        """Drop what is held."""
        self._chunks.clear()
        self._count_memory(-self._memory_bytes)
        held_bytes().files -= self._file_bytes
        self._file_bytes = 0
        if self._file is not None:
            self._file.close()

    async def _hold(self, chunk: bytes) -> bool:
        """Hold one more chunk; False if there is no room for another one."""
        # Thousands of tiny objects would take several times the memory that is counted.
        if self._chunks and len(self._chunks[-1]) < SMALL_CHUNK_BYTES:
            self._chunks[-1] += chunk
        else:
            self._chunks.append(chunk)
        self._count_memory(len(chunk))
        if self._file is not None:
            return self._memory_bytes < FILE_CHUNK_BYTES or await self._move_to_file()
        limits = self._limits
        fits = (
            self._memory_bytes <= limits.document_memory
            and held_bytes().memory <= limits.process_memory
        )
        return fits or await self._move_to_file()

    async def _move_to_file(self) -> bool:
        """Move what is held from memory to a temporary file; False if that is not possible."""
        if held_bytes().files + self._memory_bytes > self._limits.process_files:
            return False
        self._file = self._file or _HeldFile()
        try:
            await asyncio.to_thread(self._file.write, self._file_bytes, tuple(self._chunks))
        except OSError as error:
            log.warning("temporary_file_failed", error=error.strerror)
            return False
        self._file_bytes += self._memory_bytes
        held_bytes().files += self._memory_bytes
        self._chunks.clear()
        self._count_memory(-self._memory_bytes)
        return True

    def _count_memory(self, size: int) -> None:
        """Count bytes of this body that came into memory or left it."""
        self._memory_bytes += size
        held_bytes().memory += size


class _HeldFile:
    """A temporary file for a held body; it has no name and vanishes with the process.

    Used in threads, one call at a time. A cancelled task cannot stop a call that is under way, so
    `close` waits for it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self._closed = False

    def write(self, position: int, chunks: Iterable[bytes]) -> None:
        """Write all chunks at `position` or raise OSError; a retry overwrites a partial write."""
        with self._lock:
            if self._file is None and not self._closed:
                # Without a buffer, a failed write shows at once.
                self._file = TemporaryFile(buffering=0)  # noqa: SIM115 closed by `close`
            if self._file is not None:
                self._file.seek(position)
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest and self._file is not None:
                    rest = rest[self._file.write(rest) :]

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes of the held body from this position."""
        with self._lock:
            if self._file is None:
                raise OSError("the file is closed")
            self._file.seek(position)
            found = self._file.read(size)
            if not found:
                raise OSError("the file was truncated")
            return found

    def close(self) -> None:
        """Delete the temporary file of a held body."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
