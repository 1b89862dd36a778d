"""Measures search, export and comparison on one site with millions of stored URLs.

The rows are made in the database; nothing is requested from a site. One URL, the last in the order
of the list, differs from all others in every filter. Run it as `python -m bench.large_site`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from sqlalchemy import func, insert

from bench.measured import our_command, peak_memory_mb, run_measured
from bench.publication import HOST, BenchSite, vacuum
from bench.serve_command import request_json, serving
from siteatlas.settings import Settings
from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.session import get_background_session
from siteatlas.storage.startup import open_storage

NEEDLE = f"https://{HOST}/needle"
LAST_HASH = 2**63 - 1
EXTRAS: dict[str, Any] = {"images": [{}], "news": {}, "videos": [{}], "alternates": [{}]}
FILTERS: tuple[dict[str, str], ...] = (
    {"contains": "NEEDLE"},
    {"prefix": NEEDLE},
    {"lastmod_from": "2100-01-01"},
    {"first_seen_from": "2100-01-01"},
    {"has": "images,news,video,alternates"},
)
CHUNK = 1 << 20
SECONDS_BETWEEN_REQUESTS = 0.05


async def make_site(data: Path, urls: int) -> None:
    """Store the URLs, the last of which only its filters find."""
    async with open_storage(Settings(data_dir=data)) as database:
        site = BenchSite(urls - 1)
        await site.make()
        row = {"sitemap_id": max(site.documents), "url_hash": LAST_HASH, "url": NEEDLE}
        row |= {"fingerprint": 1, "extras": EXTRAS, "removed_at": None}
        far = func.make_timestamptz(2101, 1, 1, 0, 0, 0)
        async with get_background_session() as session, session.begin():
            row |= {"lastmod": far, "first_seen_at": far}
            await session.execute(insert(SitemapUrl).values(row))
        await vacuum(database)


def find(address: str, query: dict[str, str]) -> tuple[int, list[float]]:
    """The number of requests until the URL is found, or the list ends, and their seconds."""
    cursor, seconds = None, []
    while True:
        page_query = query | ({"cursor": cursor} if cursor else {})
        start = time.perf_counter()
        page = request_json(f"{address}/api/v3/domains/{HOST}/urls?{urlencode(page_query)}")
        seconds.append(time.perf_counter() - start)
        cursor = page["next_cursor"]
        if page["items"] or cursor is None:
            return len(seconds), seconds


@contextmanager
def other_requests(address: str) -> Iterator[list[float]]:
    """The seconds of requests that are made while the block runs."""
    seconds: list[float] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(SECONDS_BETWEEN_REQUESTS):
            start = time.perf_counter()
            request_json(f"{address}/api/v3/domains/{HOST}/urls?limit=100")
            seconds.append(time.perf_counter() - start)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seconds
    finally:
        ended.set()
        thread.join()


def export(address: str, form: str) -> tuple[float, int]:
    """The seconds of an export, and its size in bytes."""
    start, size = time.perf_counter(), 0
    with urlopen(f"{address}/api/v3/domains/{HOST}/export?format={form}") as response:  # noqa: S310
        while part := response.read(CHUNK):
            size += len(part)
    return time.perf_counter() - start, size


def reset_peak_memory(pid: int) -> None:
    """Reset the peak memory of a process to its current memory."""
    print_line("before", f"peak {peak_memory_mb(pid):.0f} MB")
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def percentile(seconds: list[float], share: float) -> float:
    """The time, in milliseconds, that a share of the requests did not exceed."""
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def describe(seconds: list[float]) -> str:
    """Times of requests as text."""
    if not seconds:
        return "no requests"
    median = 1000 * statistics.median(seconds)
    return (
        f"{len(seconds)} requests, median {median:.0f} ms, p99 {percentile(seconds, 0.99):.0f} ms, "
        f"max {1000 * max(seconds):.0f} ms"
    )


def compare(data: Path, folder: Path, lines: int) -> str:
    """The comparison of the site with a list of URLs in a file."""
    own = folder / "urls.txt"
    with own.open("w", encoding="utf-8") as file:
        file.writelines(f"https://{HOST}/catalogue/articles/item-{2 * n}\n" for n in range(lines))
    environment = {**os.environ, "SITEATLAS_DATA_DIR": str(data)}
    done = run_measured([our_command(), "compare", HOST, str(own)], environment)
    return f"exit {done.exit_code}, {done.seconds:.0f} s, {done.peak_mb:.0f} MB; {done.stderr}"


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=5_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with serving(folder, "127.0.0.1:9") as (pid, address):
            (data,) = folder.glob("serve-*/data")
            asyncio.run(make_site(data, given.urls))
            print_line("stored", f"{given.urls:,} URLs")
            for query in FILTERS:
                _, seconds = find(address, query)
                print_line(str(query), describe(seconds))
            for form in ("csv", "parquet"):
                reset_peak_memory(pid)
                with other_requests(address) as others:
                    seconds_taken, size = export(address, form)
                memory = f"peak {peak_memory_mb(pid):.0f} MB"
                print_line(form, f"{seconds_taken:.0f} s, {size:,} bytes, {memory}")
                print_line("other requests meanwhile", describe(others))
            print_line("compare", compare(data, folder, given.lines))


def print_line(name: str, text: str) -> None:
    """One figure."""
    print(f"{name}: {text}", flush=True)


if __name__ == "__main__":
    main()
