"""Where data go: files that appear whole, and pipes whose readers may take their time."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from siteatlas.cli.scan.output import FileSink, ThreadSink, open_sink
from siteatlas.errors import InputError, OutputClosed, OutputFailed

MORE_THAN_A_PIPE_HOLDS = b"x" * 1_000_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe: read, write."""
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        try:
            os.close(end)
        except OSError:
            continue


def read_to_end(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


async def test_a_stalled_reader_does_not_hold_up_the_loop(pipe: tuple[int, int]):
    reader, writer = pipe
    sink = ThreadSink(writer)
    await sink.ready()
    sink.put(MORE_THAN_A_PIPE_HOLDS)
    waiting = asyncio.create_task(sink.ready())
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not waiting.done()
    read = bytearray()
    drain = threading.Thread(target=lambda: read.extend(read_to_end(reader)))
    drain.start()
    await asyncio.wait_for(waiting, 10)
    await sink.close(keep=True)
    os.close(writer)
    drain.join(10)
    assert bytes(read) == MORE_THAN_A_PIPE_HOLDS


async def test_a_cancelled_wait_does_not_cut_the_piece(pipe: tuple[int, int]):
    reader, writer = pipe
    sink = ThreadSink(writer)
    sink.put(MORE_THAN_A_PIPE_HOLDS)
    waiting = asyncio.create_task(sink.ready())
    await asyncio.sleep(0.02)
    waiting.cancel()
    reading = asyncio.create_task(asyncio.to_thread(read_to_end, reader))
    await asyncio.wait_for(sink.close(keep=True), 10)
    os.close(writer)
    assert len(await asyncio.wait_for(reading, 10)) == len(MORE_THAN_A_PIPE_HOLDS)


async def test_a_closed_pipe_is_reported_at_the_next_chunk(pipe: tuple[int, int]):
    reader, writer = pipe
    os.close(reader)
    sink = ThreadSink(writer)
    sink.put(b"data")
    with pytest.raises(OutputClosed):
        await sink.ready()
    with pytest.raises(OutputClosed):
        await sink.close(keep=True)


async def test_several_writers_get_through_one_at_a_time(pipe: tuple[int, int]):
    reader, writer = pipe
    sink = ThreadSink(writer)

    async def write(letter: bytes) -> None:
        for _ in range(5):
            await sink.ready()
            sink.put(letter * 100_000 + b"\n")

    reading = asyncio.create_task(asyncio.to_thread(read_to_end, reader))
    await asyncio.gather(write(b"a"), write(b"b"), write(b"c"))
    await sink.close(keep=True)
    os.close(writer)
    lines = (await reading).splitlines()
    assert sorted(lines) == sorted(
        letter * 100_000 for letter in (b"a", b"b", b"c") for _ in "12345"
    )


async def test_a_pipe_that_somebody_made_non_blocking_gets_everything(pipe: tuple[int, int]):
    reader, writer = pipe
    os.set_blocking(writer, False)
    sink = ThreadSink(writer)
    sink.put(MORE_THAN_A_PIPE_HOLDS)
    reading = asyncio.create_task(asyncio.to_thread(read_to_end, reader))
    await sink.close(keep=True)
    os.close(writer)
    assert len(await reading) == len(MORE_THAN_A_PIPE_HOLDS)


async def test_a_file_appears_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "urls.txt"
    sink = open_sink(path)
    await sink.ready()
    sink.put(b"one\n")
    assert not path.exists()
    await sink.close(keep=True)
    assert path.read_bytes() == b"one\n"
    assert list(tmp_path.iterdir()) == [path]


async def test_an_earlier_file_stays_when_nothing_was_found(tmp_path: Path):
    path = tmp_path / "urls.txt"
    path.write_text("earlier")
    sink = FileSink(path)
    sink.put(b"head\n")
    await sink.close(keep=False)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


async def test_a_link_stays_a_link(tmp_path: Path):
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    target.write_text("earlier")
    link.symlink_to(target)
    sink = open_sink(link)
    sink.put(b"new")
    await sink.close(keep=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("place", ["", "missing/urls.txt"])
def test_a_place_that_cannot_be_written_is_an_input_error(tmp_path: Path, place: str):
    with pytest.raises(InputError, match=str(tmp_path / place)):
        open_sink(tmp_path / place)


async def test_a_full_disk_is_reported_by_a_message():
    sink = open_sink(Path("/dev/full"))
    sink.put(b"data")
    with pytest.raises(OutputFailed, match=os.strerror(errno.ENOSPC)):
        await sink.ready()
