"""Prints how fast Siteatlas and its peers read one large site, as ratios of one run.

Creates the site once under the system's temporary directory and serves it on loopback. All programs
take turns, in several rounds; the figures are medians.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.figure import Figure, as_data, comparison_lines, over_rounds, table
from bench.make_site import make_site
from bench.measured import compile_ours
from bench.node_peer import NAME as NODE_PEER
from bench.node_peer import measure_node_peer
from bench.page_times import measure_pages
from bench.peers import PEERS, measure_peer
from bench.queue_figures import measure_queue, queue_table
from bench.scan_command import measure_scan
from bench.serve_command import measure_serve
from bench.site_server import HOST, ServedSite, served
from bench.startup import measure_startup

READERS = (*PEERS, NODE_PEER)
PARTS = (*READERS, "scan", "serve", "queue", "startup", "pages")
# The sites of the dashboard have ten times as many URLs as that of the readers.
PAGE_SHARE = 10
WITHOUT_SITE = {"queue", "startup", "pages"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--urls", type=int, default=500_000, help="size of the site (500,000)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="how often each program runs, in turn (5)"
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"comma-separated list of {', '.join(PARTS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--port", type=int, default=18423, help="where the site is served (18423)")
    parser.add_argument("--sites", type=int, default=3_000, help="on the pages (3,000)")
    chosen = parser.parse_args()
    chosen.only = [part for part in chosen.only.split(",") if part]
    if unknown := set(chosen.only) - set(PARTS):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; use {', '.join(PARTS)}")
    return chosen


def measure(
    part: str, folder: Path, served_site: ServedSite, site: Path, urls: int
) -> list[Figure]:
    """The figures of one program in one round."""
    print_progress(f"measuring {part} ...")
    match part:
        case "scan":
            return [measure_scan(folder, served_site.base_url, urls)]
        case "serve":
            return measure_serve(folder, served_site, site, urls)
        case _ if part == NODE_PEER:
            return [measure_node_peer(folder, served_site.base_url, urls)]
        case _:
            return [measure_peer(part, folder, served_site.base_url, urls)]


def measure_rounds(chosen: argparse.Namespace, folder: Path) -> list[Figure]:
    """The figures of all programs that read the site, over all rounds."""
    parts = [part for part in chosen.only if part not in WITHOUT_SITE]
    if not parts:
        return []
    print_progress(f"creating a site of {chosen.urls:,} URLs ...")
    site = make_site(folder, f"http://{HOST}:{chosen.port}", chosen.urls)
    figures: list[Figure] = []
    with served(site, chosen.port) as served_site:
        for number in range(chosen.rounds):
            print_progress(f"round {number + 1} of {chosen.rounds}")
            for part in parts:
                figures += measure(part, folder, served_site, site, chosen.urls)
    return over_rounds(figures)


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    chosen = options()
    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    folder.mkdir(exist_ok=True)
    compile_ours()
    figures = measure_rounds(chosen, folder)
    if figures:
        print(table(figures), *comparison_lines(figures, READERS), sep="\n")
    queue = measure_queue(folder, chosen.urls) if "queue" in chosen.only else []
    if queue:
        print(queue_table(queue))
    startup = measure_startup() if "startup" in chosen.only else None
    if startup:
        print(startup)
    pages = (
        measure_pages(PAGE_SHARE * chosen.urls, chosen.sites) if "pages" in chosen.only else None
    )
    if pages:
        print(pages["text"])
    if chosen.json:
        data = {"site": as_data(figures), "queue": [asdict(one) for one in queue]}
        text = json.dumps(data | {"startup": startup} | (pages or {}), indent=2)
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
    return 1 if any(figure.problem for figure in figures if figure.name != NODE_PEER) else 0


if __name__ == "__main__":
    sys.exit(main())
