"""The sitemaps of a site as a text tree: indexes with their children, counts and errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from siteatlas.cli.terminal.choices import counted
from siteatlas.safe_text import printable
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.report import CandidateSeen, ScanReport, SitemapSeen

MIDDLE, LAST = ("├── ", "│   "), ("└── ", "    ")


def tree_text(report: ScanReport) -> bytes:
    """The output of `siteatlas scan --format tree`: one line per document, nothing shortened."""
    lines = [printable(f"{report.site}  {counted(report.url_count, 'URL')}")]
    roots, children = families(report.sitemaps)
    lines.extend(_branches(roots, children, ""))
    unfetched = unfetched_children(report)
    for position, child in enumerate(unfetched, start=1):
        fork, _ = LAST if position == len(unfetched) else MIDDLE
        lines.append(printable(f"    {fork}{child.url}  not fetched"))
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def unfetched_children(report: ScanReport) -> list[CandidateSeen]:
    """The sitemaps listed in a local index, which a scan does not fetch."""
    return [
        candidate for candidate in report.candidates if candidate.reason == ProblemCode.NOT_FETCHED
    ]


def families(
    sitemaps: Sequence[SitemapSeen],
) -> tuple[list[SitemapSeen], dict[str, list[SitemapSeen]]]:
    """The documents without a parent in the list, and the children of the others."""
    urls = {sitemap.url for sitemap in sitemaps}
    roots: list[SitemapSeen] = []
    children: dict[str, list[SitemapSeen]] = defaultdict(list)
    for sitemap in sitemaps:
        parent = sitemap.parent
        if parent is not None and parent in urls and parent != sitemap.url:
            children[parent].append(sitemap)
        else:
            roots.append(sitemap)
    return roots, children


def describe(sitemap: SitemapSeen) -> str:
    """One document in a line: its URL, what was read from it, and what went wrong."""
    words = [counted(sitemap.url_count, "URL") if sitemap.type != "index" else "index"]
    if sitemap.error_code:
        words.append(f"{sitemap.outcome}: {sitemap.error_code}")
    return printable(f"{sitemap.url}  {', '.join(words)}")


def _branches(
    sitemaps: Sequence[SitemapSeen], children: dict[str, list[SitemapSeen]], indent: str
) -> Iterator[str]:
    """The lines of `siteatlas scan --format tree` for these sitemaps and their children."""
    for position, sitemap in enumerate(sitemaps, start=1):
        fork, below = LAST if position == len(sitemaps) else MIDDLE
        yield indent + fork + describe(sitemap)
        # Taken out, so that indexes that name each other cannot loop forever.
        yield from _branches(children.pop(sitemap.url, []), children, indent + below)
