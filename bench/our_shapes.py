"""Times Siteatlas: our_shapes.py KIND FILE. In chunks of 64 KiB, as in a scan."""

from __future__ import annotations

from bench.shape_timing import ADDRESS, time_reading
from siteatlas.scanner.reading.document import DocumentReader

CHUNK_BYTES = 64 * 1024


def read(content: bytes, _kind: str) -> int:
    reader = DocumentReader(base_url=ADDRESS)
    urls = 0
    for at in range(0, len(content), CHUNK_BYTES):
        urls += sum(len(result.columns) for result in reader.feed(content[at : at + CHUNK_BYTES]))
    return urls + sum(len(result.columns) for result in reader.close())


if __name__ == "__main__":
    time_reading(read)
