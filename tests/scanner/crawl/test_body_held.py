"""A body that is held until its hash is known: where it is held, and what comes out of it."""

from __future__ import annotations

import asyncio
import errno
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from siteatlas.errors import Truncated
from siteatlas.scanner.crawl import body as held_body
from siteatlas.scanner.crawl.body import FILE_CHUNK_BYTES, HeldBody, HoldLimits, held_bytes
from siteatlas.scanner.reading.decoding import ContentHash, WireHash

CHUNKS = [bytes([number]) * 1000 for number in range(10)]
WHOLE = b"".join(CHUNKS)
IN_FILES = HoldLimits(document_memory=2500)


async def arriving(chunks: Iterable[bytes], fault: Exception | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if fault is not None:
        raise fault


async def all_of(body: HeldBody) -> bytes:
    return b"".join([chunk async for chunk in body.chunks()])


def hash_of(*chunks: bytes, charset: str | None = None) -> str:
    wire_hash = WireHash(charset)
    for chunk in chunks:
        wire_hash.update(chunk)
    return wire_hash.hexdigest()


@pytest.mark.parametrize("limits", [HoldLimits(), IN_FILES], ids=["memory", "file"])
async def test_a_body_with_the_known_hash_matches(limits):
    body = HeldBody(arriving(CHUNKS), None, limits)
    assert await body.matches(hash_of(WHOLE), len(WHOLE))
    assert body.size == len(WHOLE)
    body.release()


@pytest.mark.parametrize("limits", [HoldLimits(), IN_FILES], ids=["memory", "file"])
async def test_a_body_that_differs_comes_out_as_it_arrived(limits):
    body = HeldBody(arriving(CHUNKS), None, limits)
    assert not await body.matches("of another body")
    assert await all_of(body) == WHOLE
    body.release()


async def test_a_body_of_many_file_chunks_comes_out_as_it_arrived():
    chunks = [bytes([number]) * (FILE_CHUNK_BYTES // 3) for number in range(8)]
    body = HeldBody(arriving(chunks), None, IN_FILES)
    assert not await body.matches("of another body")
    assert held_bytes().files > FILE_CHUNK_BYTES
    assert await all_of(body) == b"".join(chunks)
    body.release()


async def test_a_body_that_is_longer_than_the_known_one_is_not_held_to_its_end():
    body = HeldBody(arriving(CHUNKS))
    assert not await body.matches(hash_of(WHOLE), 1500)
    assert (body.size, held_bytes().memory) == (2000, 2000)
    assert await all_of(body) == WHOLE
    body.release()


@pytest.mark.parametrize("files", [0, FILE_CHUNK_BYTES], ids=["at once", "later"])
async def test_a_body_beyond_all_limits_is_handed_on(files):
    chunks = [bytes([number]) * (FILE_CHUNK_BYTES // 3) for number in range(8)]
    limits = HoldLimits(document_memory=2500, process_files=files)
    body = HeldBody(arriving(chunks), None, limits)
    assert not await body.matches(hash_of(*chunks))
    assert body.size < 8 * len(chunks[0])
    assert await all_of(body) == b"".join(chunks)
    body.release()


async def test_all_bodies_of_a_process_share_one_limit_in_memory():
    limits = HoldLimits(process_memory=12_000)
    first, second = (HeldBody(arriving(CHUNKS), None, limits) for _ in range(2))
    assert await first.matches(hash_of(WHOLE))
    assert (held_bytes().memory, held_bytes().files) == (10_000, 0)
    assert await second.matches(hash_of(WHOLE))
    assert held_bytes().files > 0
    first.release()
    second.release()
    assert (held_bytes().memory, held_bytes().files) == (0, 0)


async def test_what_is_handed_on_no_longer_counts():
    body = HeldBody(arriving(CHUNKS))
    await body.matches("of another body")
    async for _ in body.chunks():
        pass
    assert held_bytes().memory == 0
    body.release()


async def test_a_fault_comes_after_the_bytes_before_it():
    body = HeldBody(arriving(CHUNKS, Truncated()))
    assert not await body.matches(hash_of(WHOLE))
    handed_on, received = body.chunks(), b""
    while len(received) < len(WHOLE):
        received += await anext(handed_on)
    assert received == WHOLE
    with pytest.raises(Truncated):
        await anext(handed_on)
    body.release()


async def test_a_disk_that_refuses_the_file_leaves_the_body_readable(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    body = HeldBody(arriving(CHUNKS), None, IN_FILES)
    assert not await body.matches(hash_of(WHOLE))
    assert await all_of(body) == WHOLE
    body.release()


class FullForAMoment:
    """A file on a disk that has no room for the whole of the first write."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._refused = 0

    def write(self, data: memoryview) -> int:
        self._refused += 1
        if self._refused == 1:
            return self._file.write(data[:10])
        if self._refused == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


async def test_a_disk_that_was_full_for_a_moment_leaves_the_body_as_it_arrived(monkeypatch):
    file = FullForAMoment(TemporaryFile(buffering=0))  # noqa: SIM115 closed by `release`
    monkeypatch.setattr(held_body, "TemporaryFile", lambda **_options: file)
    chunks = [bytes([number]) * FILE_CHUNK_BYTES for number in range(4)]
    body = HeldBody(arriving(chunks), None, IN_FILES)
    assert not await body.matches(hash_of(*chunks))
    assert await body.receive()
    assert await all_of(body) == b"".join(chunks)
    body.release()


async def test_bytes_that_arrive_one_by_one_take_little_more_memory_than_they_are():
    body = HeldBody(arriving(bytes([number % 256]) for number in range(20_000)))
    tracemalloc.start()
    try:
        await body.matches("of another body")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 60_000
    assert await all_of(body) == bytes(number % 256 for number in range(20_000))
    body.release()


@pytest.mark.parametrize("limits", [HoldLimits(), IN_FILES], ids=["memory", "file"])
async def test_a_body_that_is_given_up_while_it_arrives_leaves_nothing(limits):
    arrived, never = asyncio.Event(), asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        for chunk in CHUNKS:
            yield chunk
        arrived.set()
        await never.wait()

    body = HeldBody(stalling(), None, limits)
    task = asyncio.create_task(body.matches("of another body"))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    body.release()
    assert (held_bytes().memory, held_bytes().files) == (0, 0)


@pytest.mark.parametrize("cuts", [[1, 1, 1, 5, 30], [10], [4, 4]], ids=str)
def test_the_time_of_compression_does_not_change_the_hash(cuts):
    content = b"<urlset/>" * 100
    earlier, later = (gzip.compress(content, mtime=mtime) for mtime in (1, 2_000_000_000))
    parts, position = [], 0
    for size in cuts:
        parts.append(later[position : position + size])
        position += size
    assert hash_of(*parts, later[position:]) == hash_of(earlier)
    assert earlier != later


def test_everything_else_changes_the_hash():
    content = gzip.compress(b"<urlset/>", mtime=1)
    assert len({hash_of(content), hash_of(content + b"x"), hash_of(b"x" + content)}) == 3
    plain = b"0123456789"
    assert hash_of(plain) != hash_of(plain[:4] + b"    " + plain[8:])
    assert hash_of(content, charset="utf-8") != hash_of(content, charset="latin-1")
    assert hash_of(content, charset="UTF-8") == hash_of(content, charset="utf-8")


@pytest.mark.parametrize("size", range(12))
def test_short_bodies_have_hashes_of_their_own(size):
    assert hash_of(b"x" * size) != hash_of(b"x" * (size + 1))


def test_a_stored_hash_is_read_back_and_an_older_form_is_not():
    hashes = ContentHash("ab", "cd")
    assert ContentHash.parse(str(hashes)) == hashes
    assert [ContentHash.parse(text) for text in (None, "", "abcd", "-", "ab-", "-cd")] == [None] * 6
