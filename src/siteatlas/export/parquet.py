"""Parquet exports: `parquet_process.py` encodes the rows, in a separate process.

pyarrow and its buffers take about 90 MB, which the service would keep after the export, and
encoding takes longer than reading. Rows go to the process as pickled lists; an empty list requests
an answer, and None the end of the file. An answer is a length and as many bytes of the file.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from siteatlas.aio import fair_loop
from siteatlas.errors import ParquetFailed, ParquetUnavailable
from siteatlas.export.encoding import ExportMetadata, ExportSchema, row_slices

LENGTH = struct.Struct(">Q")
# The exit code of the process if pyarrow cannot be imported.
UNAVAILABLE = 3
# Without the current directory among the places that modules are imported from.
PROCESS = ("-P", "-m", "siteatlas.export.parquet_process")


def require_parquet() -> None:
    """Raise ParquetUnavailable without pyarrow."""
    if find_spec("pyarrow") is None:
        raise ParquetUnavailable


async def parquet_content(
    schema: ExportSchema, metadata: ExportMetadata, batches: AsyncIterator[Sequence[Any]]
) -> AsyncGenerator[bytes, None]:
    """The bytes of an export; each batch is read while the one before is encoded."""
    async with _process() as process:
        await _send(process, (schema.name, metadata))
        async for views in batches:
            if data := await _answer(process):
                yield data
            async for rows in fair_loop().time_slices(_plain_rows(schema, views)):
                await _send(process, rows)
            await _send(process, [])
        yield await _answer(process)
        await _send(process, None)
        yield await _answer(process)


@asynccontextmanager
async def _process() -> AsyncIterator[Process]:
    """The process of one export; it is gone at the end of the block.

    It has a session of its own, so that a Ctrl-C reaches this process only.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *PROCESS, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
    except OSError as error:
        raise ParquetFailed(
            f"The process that encodes Parquet cannot be started: {error}"
        ) from error
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _plain_rows(schema: ExportSchema, views: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
    fields = attrgetter(*schema.view_fields)
    for rows in row_slices(views):
        yield [fields(view) for view in rows]


async def _send(process: Process, message: object) -> None:
    """Send a message; if the process is gone, the next answer says so."""
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    try:
        await process.stdin.drain()
    except ConnectionError:
        return


async def _answer(process: Process) -> bytes:
    assert process.stdout is not None
    try:
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        return await process.stdout.readexactly(length)
    except asyncio.IncompleteReadError as error:
        unavailable = await process.wait() == UNAVAILABLE
        raise (ParquetUnavailable if unavailable else ParquetFailed) from error
