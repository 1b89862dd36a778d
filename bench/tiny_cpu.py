"""Prints the CPU time that one tiny site takes, without a database: `python -m bench.tiny_cpu`.

Every site has a robots.txt and one sitemap of ten URLs. Each program reads all of them in a process
of its own, which counts its own CPU time, without its imports. The peers pace nothing.
"""

# ruff: noqa: PLC0415 - each reader imports what only its own environment has

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any

from bench.tiny_sites import PORT, URLS, addresses, tiny_sites

IN_FLIGHT = 256
READERS = ("siteatlas", "usp", "scrapy")


def read_ours(sites: list[str]) -> tuple[int, float]:
    from siteatlas.net.address import parse_site
    from siteatlas.net.client import Politeness
    from siteatlas.net.egress import EgressPolicy
    from siteatlas.scanner.analyzer import SitemapAnalyzer
    from siteatlas.scanner.events import EntriesRead

    class Strangers(EgressPolicy):
        """Opens loopback, and paces its hosts like public ones."""

        def is_own(self, address: object) -> bool:  # noqa: ARG002
            return False

    waiting, found = iter(sites), 0

    async def read_some(analyzer: SitemapAnalyzer) -> None:
        nonlocal found
        for site in waiting:
            async with aclosing(analyzer.scan(parse_site(site))) as events:
                async for event in events:
                    found += len(event.columns) if isinstance(event, EntriesRead) else 0

    async def read_all() -> None:
        analyzer = SitemapAnalyzer(Strangers.from_text(f"127.0.0.0/8:{PORT}"), Politeness())
        await asyncio.gather(*(read_some(analyzer) for _ in range(IN_FLIGHT)))

    since = time.process_time()
    asyncio.run(read_all())
    return found, time.process_time() - since


def read_with_usp(sites: list[str]) -> tuple[int, float]:
    from usp.tree import sitemap_tree_for_homepage

    def count(site: str) -> int:
        tree = sitemap_tree_for_homepage(f"{site}/", use_known_paths=False)
        return sum(1 for _ in tree.all_pages())

    since = time.process_time()
    with ThreadPoolExecutor(32) as threads:
        found = sum(threads.map(count, sites))
    return found, time.process_time() - since


def read_with_scrapy(sites: list[str]) -> tuple[int, float]:
    from scrapy.crawler import CrawlerProcess  # type: ignore[import-not-found]
    from scrapy.spiders import SitemapSpider  # type: ignore[import-not-found]

    found = 0

    class Entries(SitemapSpider):  # type: ignore[misc]
        name = "entries"
        sitemap_urls = tuple(f"{site}/robots.txt" for site in sites)

        def sitemap_filter(self, entries: Iterator[Any]) -> Iterator[Any]:
            nonlocal found
            found += sum(1 for _ in entries)
            return iter(())

    since = time.process_time()
    process = CrawlerProcess({"CONCURRENT_REQUESTS": IN_FLIGHT, "LOG_ENABLED": False})
    process.crawl(Entries)
    process.start()
    return found, time.process_time() - since


def read_all(reader: str, count: int) -> None:
    """Read all sites once, and print the CPU milliseconds of one."""
    logging.disable(logging.CRITICAL)
    read = {"siteatlas": read_ours, "usp": read_with_usp, "scrapy": read_with_scrapy}[reader]
    found, seconds = read(addresses(count))
    if found != count * URLS:
        raise SystemExit(f"{reader} found {found} URLs, not {count * URLS}")
    print(seconds / count * 1000)


def compare(readers: list[str], count: int, rounds: int) -> None:
    """Let the programs take turns, and print the medians."""
    from bench.peers import PEERS, peer_python, run_reader

    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    pythons = {one: peer_python(folder, PEERS[one]) for one in readers if one in PEERS}
    times: dict[str, list[float]] = {one: [] for one in readers}
    with tiny_sites(count):
        for one in readers * rounds:
            python = pythons.get(one, Path(sys.executable))
            arguments = ("--reader", one, "--sites", str(count))
            times[one].append(float(run_reader(python, "tiny_cpu", *arguments, limit=600)))
    for one, found in times.items():
        print(f"{one:9} {median(found):5.2f} ms CPU a site ({min(found):.2f} to {max(found):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tiny_cpu", description=__doc__)
    parser.add_argument("--sites", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(READERS))
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.reader:
        read_all(chosen.reader, chosen.sites)
    else:
        compare(chosen.only.split(","), chosen.sites, chosen.rounds)


if __name__ == "__main__":
    main()
