"""The picture of scans under way: a tree of documents and a bar for each site.

`live_view.py` decides whether and how often it is drawn.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from siteatlas.cli.scanning.live_view import counts
from siteatlas.cli.scanning.runner import ScanRun, ScanRunner
from siteatlas.cli.scanning.sitemap_tree import describe
from siteatlas.cli.terminal.choices import counted
from siteatlas.safe_text import printable
from siteatlas.scanner.report import ReportBuilder

BAR_WIDTH = 24
# Room for the bar, the prompt and what a terminal may wrap.
LINES_BELOW = 4
MIN_LINES = 3


def drawn(runner: ScanRunner, height: int) -> RenderableType:
    """The picture of this moment, not higher than the terminal."""
    runs = list(runner.active)
    parts: list[RenderableType] = []
    if runner.ended:
        parts.append(Text(f"{counted(len(runner.ended), 'site')} done"))
    room = max(MIN_LINES, (height - LINES_BELOW) // max(len(runs), 1) - 2)
    for run in runs:
        parts.append(_text(f"{run.target.name}  {_found(run.builder)}", "bold"))
        parts.extend(_text(line) for line in tree_lines(run.builder, room))
        parts.append(_bar(run))
    return Group(*parts)


def tree_lines(builder: ReportBuilder, room: int) -> list[str]:
    """Indexes, what is being read, and what was read last, in at most `room` lines."""
    read = builder.report.sitemaps
    roots = [sitemap for sitemap in read if sitemap.parent is None]
    leaves = [sitemap for sitemap in read if sitemap.parent is not None]
    reading = [
        f"{'  ' if o.parent else ''}{o.url}  {counted(o.url_count, 'URL')} …"
        for o in builder.open.values()
    ]
    above = [describe(sitemap) for sitemap in roots][-max(1, room // 2) :]
    left = room - len(above) - len(reading) - 1
    last = leaves[len(leaves) - left :] if 0 < left < len(leaves) else leaves[: max(left, 0)]
    hidden = len(leaves) - len(last) + len(roots) - len(above)
    more = [f"  … {counted(hidden, 'sitemap')} more read"] if hidden else []
    return [*above, *more, *(f"  {describe(s)}" for s in last), *reading][: room + 1]


def _found(builder: ReportBuilder) -> str:
    """What is known about a site's robots.txt, for the live view of a scan."""
    robots = builder.robots
    if robots is None:
        return "looking for sitemaps"
    if robots.sitemap_urls:
        return f"robots.txt names {counted(len(robots.sitemap_urls), 'sitemap')}"
    return "robots.txt names no sitemap; looking in the usual places"


def _bar(run: ScanRun) -> Table:
    """The progress bar of one site in the live view of a scan."""
    done, known = len(run.builder.report.sitemaps), max(run.builder.documents_expected, 1)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=known, completed=done, width=BAR_WIDTH), _text(counts(run)))
    return grid


def _text(line: str, style: str = "") -> Text:
    """One line of the live view of a scan, safe to print and cut at the terminal's edge."""
    return Text(printable(line), style=style, no_wrap=True, overflow="ellipsis")
