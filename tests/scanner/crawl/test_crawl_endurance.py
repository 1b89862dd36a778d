"""A bomb, an endless body and a drip end within their limits; other scans keep their speed."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import DocumentClosed, ProblemSeen
from tests.fixtures.documents import urlset_of
from tests.fixtures.raw_server import Connection, RawServer, whole_answer
from tests.fixtures.scans import ScanRecord, record_scan
from tests.fixtures.site_server import SiteServer
from tests.fixtures.timings import measured
from tests.scanner.conftest import QUICK

MIB = 1024 * 1024
STATM = Path("/proc/self/statm")
LIMITS = replace(QUICK, document=3.0, idle=1.0, speed_window=1.0, max_bytes=30 * MIB)
URLS = [f"https://a.example/{number}" for number in range(2000)]
ENTRIES = urlset_of(URLS).partition(b"<url>")[2].replace(b"</urlset>", b"")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * 4096


def compressed_bomb() -> bytes:
    """120 MB in one gzip member, never held as a whole."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    part = b"<url><loc>https://a.example/</loc></url>" + b" " * 900_000
    parts = [packer.compress(b"<urlset>"), *(packer.compress(part) for _ in range(130))]
    return b"".join([*parts, packer.flush()])


BOMB = compressed_bomb()


async def bomb(connection: Connection) -> None:
    await connection.answer(BOMB)


async def endless(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n\r\n<urlset><url>")
    while True:
        await connection.send(ENTRIES + b"<url>")


async def drip(connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n\r\n<urlset>")
    while True:
        await connection.send(b"<!-- -->")
        await asyncio.sleep(0.02)


async def scan_of(
    make_analyzer, answer: Callable[[Connection], Awaitable[None]]
) -> tuple[ScanRecord, float]:
    async def serve(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            if "/robots.txt" in request:
                await connection.send(whole_answer(b"Sitemap: /s.xml"))
            else:
                await answer(connection)

    started = time.monotonic()
    async with RawServer(serve) as server:
        record = await record_scan(make_analyzer(server.entry, limits=LIMITS), server.url())
    return record, time.monotonic() - started


async def ordinary(connection: Connection) -> None:
    await connection.answer(urlset_of(URLS))


async def watch(samples: list[tuple[float, int]]) -> None:
    """Note how late the loop is and how much memory is in use, again and again."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        samples.append((time.monotonic() - before - 0.01, resident_bytes()))


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("answer", "code", "seconds"),
    [(bomb, {"bomb", "too_large"}, 4), (endless, {"too_many_entries"}, 9), (drip, {"too_slow"}, 9)],
)
async def test_harm_is_bounded_and_others_are_not_slowed(make_analyzer, answer, code, seconds):
    await scan_of(make_analyzer, ordinary)
    samples: list[tuple[float, int]] = []
    before = resident_bytes()
    watcher = asyncio.create_task(watch(samples))
    hostile = asyncio.create_task(scan_of(make_analyzer, answer))
    await asyncio.sleep(0.1)
    others = [await scan_of(make_analyzer, ordinary) for _ in range(5)]
    record, spent = await hostile
    watcher.cancel()
    codes = [event.error_code for event in record.all(DocumentClosed) if event.error_code]
    outcome = record.error_code or codes[0]
    assert outcome in code
    assert spent < seconds
    assert all(other.urls == URLS for other, _ in others)
    measured(max(time_taken for _, time_taken in others), 2)
    lateness = sorted(late for late, _ in samples)
    measured(lateness[len(lateness) * 95 // 100], 0.1)
    kept = sum(len(url) + 120 for url in record.urls)
    assert max(size for _, size in samples) - before - 2 * kept < 20 * MIB


@pytest.mark.slow
@pytest.mark.full
async def test_a_robots_txt_full_of_rules_does_not_hold_up_the_event_loop(site, make_analyzer):
    letters = "/sitemap.xl0123456789"
    lines = [f"disallow:*{a}*{b}*{c}*{d}\n" for a, b, c, d in product(letters, repeat=4)]
    site.pages["/robots.txt"] = ("User-agent: *\n" + "".join(lines))[: 500 * 1024]
    # On a busy machine, other processes hold it up too.
    measured(
        min([await longest_pause(make_analyzer(site.host_port), site) for _ in range(3)]), 0.25
    )


async def longest_pause(analyzer: SitemapAnalyzer, site: SiteServer) -> float:
    """The longest time for which a scan holds up the event loop, in seconds."""
    scan = asyncio.create_task(record_scan(analyzer, site.base))
    longest, last = 0.0, time.perf_counter()
    while not scan.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    codes = [problem.code for problem in (await scan).all(ProblemSeen)]
    assert codes == ["robots_truncated"]
    return longest
