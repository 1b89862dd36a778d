"""Prints how fast Siteatlas and its peers read each shape of sitemap, in CPU seconds.

Each reading runs in a separate process, and the readers take turns, so that a machine that becomes
slower does so for all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers import peer_python, run_reader
from bench.shape_documents import SHAPES, write_documents
from bench.shape_figures import OURS, Timing, as_data, missed_goals, table

SECONDS_TO_READ = 600
# The name in the table, and the requirement (none for ourselves).
READERS = {
    OURS: None,
    "usp": "ultimate-sitemap-parser",
    "scrapy": "scrapy",
    "trafilatura": "trafilatura",
    "advertools": "advertools",
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-shapes", description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000, help="of each document (50,000)")
    parser.add_argument("--rounds", type=int, default=5, help="readings by each reader (5)")
    parser.add_argument(
        "--shapes", default=",".join(SHAPES), help="some shapes, by their beginning"
    )
    parser.add_argument("--readers", default=",".join(READERS), help=f"of {', '.join(READERS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings there too")
    chosen = parser.parse_args()
    starts = tuple(part.strip() for part in chosen.shapes.split(",") if part.strip())
    chosen.shapes = [name for name in SHAPES if name.startswith(starts)]
    chosen.readers = [part for part in chosen.readers.split(",") if part]
    if unknown := set(chosen.readers) - set(READERS):
        parser.error(f"--readers knows {', '.join(READERS)}, not {', '.join(sorted(unknown))}")
    return chosen


def time_reader(reader: str, python: Path, shape: str, file: Path) -> Timing:
    """Let one reader read one document."""
    kind = SHAPES[shape].kind
    printed = run_reader(python, f"{reader}_shapes", kind, file, limit=SECONDS_TO_READ)
    return Timing(shape, reader, **json.loads(printed))


def measure(readers: Sequence[str], files: dict[str, Path], rounds: int) -> list[Timing]:
    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    folder.mkdir(exist_ok=True)
    pythons = {
        reader: peer_python(folder, peer) if (peer := READERS[reader]) else Path(sys.executable)
        for reader in readers
    }
    timings = []
    for shape, file in files.items():
        print(f"{shape} ...", file=sys.stderr, flush=True)
        for _ in range(rounds):
            timings += [time_reader(name, pythons[name], shape, file) for name in readers]
    return timings


def main() -> int:
    chosen = options()
    with tempfile.TemporaryDirectory() as folder:
        files = write_documents(Path(folder), chosen.entries, chosen.shapes)
        timings = measure(chosen.readers, files, chosen.rounds)
    print(table(timings))
    if chosen.json:
        chosen.json.write_text(json.dumps(as_data(timings), indent=2) + "\n", encoding="utf-8")
    missed = missed_goals(timings)
    print(*missed, sep="\n", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
