"""Prints how Siteatlas and its peers go through one large site, as ratios of one run.

Makes the site once under the system's temporary directory and serves it on loopback.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure, as_data, standings, table
from bench.make_site import make_site
from bench.peers import PEERS, measure_peer
from bench.queue_figures import measure_queue, queue_table
from bench.scan_command import measure_scan
from bench.serve_command import measure_serve
from bench.site_server import HOST, served
from bench.startup import measure_startup

PARTS = (*PEERS, "scan", "serve", "queue", "startup")
WITHOUT_SITE = {"queue", "startup"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--urls", type=int, default=500_000, help="size of the site (500,000)")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--port", type=int, default=18423, help="where the site is served (18423)")
    chosen = parser.parse_args()
    chosen.only = [part for part in chosen.only.split(",") if part]
    if unknown := set(chosen.only) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    return chosen


def measure(part: str, folder: Path, base_url: str, urls: int) -> list[Figure]:
    say(f"measuring {part} ...")
    match part:
        case "scan":
            return [measure_scan(folder, base_url, urls)]
        case "serve":
            return measure_serve(folder, base_url, urls)
        case _:
            return [measure_peer(part, folder, base_url, urls)]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    chosen = options()
    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    folder.mkdir(exist_ok=True)
    base_url = f"http://{HOST}:{chosen.port}"
    say(f"a site of {chosen.urls:,} URLs ...")
    site = make_site(folder, base_url, chosen.urls)
    figures: list[Figure] = []
    with served(site, chosen.port):
        for part in chosen.only:
            if part not in WITHOUT_SITE:
                figures += measure(part, folder, base_url, chosen.urls)
    if figures:
        print(table(figures), *standings(figures, PEERS), sep="\n")
    if "queue" in chosen.only:
        say("measuring queue ...")
        print(queue_table(measure_queue(folder, chosen.urls)))
    if "startup" in chosen.only:
        say("measuring startup ...")
        print(measure_startup())
    if chosen.json:
        chosen.json.write_text(json.dumps(as_data(figures), indent=2) + "\n", encoding="utf-8")
    return 1 if any(figure.problem for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
