"""What is said on stderr when a scan has ended: five lines for a person, one for a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from siteatlas.cli.output import percent, say
from siteatlas.cli.scan_report import ScanReport

MOST_CODES = 6
MOST_LINES = 10
LABEL_WIDTH = 10


def say_block(report: ScanReport, dated: int, seconds: float) -> None:
    """Sitemaps, URLs, dates, problems, time: one line each."""
    unread = sum(sitemap.outcome == "unread" for sitemap in report.sitemaps)
    say("")
    read = len(report.sitemaps) - unread
    _line("sitemaps", f"{read:,} read" + (f", {unread:,} not" if unread else ""))
    _line("URLs", f"{report.url_count:,}")
    share = dated / report.url_count if report.url_count else 0.0
    _line("lastmod", f"{percent(share)} of the URLs have one")
    _line("problems", problem_words(report))
    if report.partial:
        _line("PARTIAL", ", ".join(report.reasons))
    _line("time", f"{seconds:.1f} s, {_rate(report, seconds):,.0f} URLs a second")


def say_line(report: ScanReport, seconds: float) -> None:
    """The same in a line, and a line for each of the first problems and faulty documents."""
    partial = f", PARTIAL: {', '.join(report.reasons)}" if report.partial else ""
    say(
        f"{report.site}: {report.url_count:,} URLs in {len(report.sitemaps):,} sitemaps, "
        f"{seconds:.1f} s, {_rate(report, seconds):,.0f} URLs a second{partial}."
    )
    lines = list(_fault_lines(report))
    for line in lines[:MOST_LINES]:
        say(f"  {line}")
    if len(lines) > MOST_LINES:
        say(f"  … and {len(lines) - MOST_LINES:,} more")


def _fault_lines(report: ScanReport) -> Iterator[str]:
    for problem in report.problems:
        where = f" in {problem.url}" if problem.url else ""
        what = f": {problem.detail}" if problem.detail else ""
        yield f"{problem.code} ({problem.count}){where}{what}"
    for sitemap in report.sitemaps:
        if sitemap.error_code:
            yield f"{sitemap.error_code} in {sitemap.url}: {sitemap.outcome}"


def problem_words(report: ScanReport) -> str:
    """Problems by code, the most frequent first."""
    codes: Counter[str] = Counter()
    for problem in report.problems:
        codes[problem.code] += problem.count
    told = set(codes)
    codes.update(s.error_code for s in report.sitemaps if s.error_code and s.error_code not in told)
    if not codes:
        return "none"
    shown = [f"{code} ({count:,})" for code, count in codes.most_common(MOST_CODES)]
    more = len(codes) - len(shown)
    return ", ".join(shown) + (f" and {more} more kinds" if more else "")


def _line(label: str, text: str) -> None:
    say(f"  {label.ljust(LABEL_WIDTH)}{text}")


def _rate(report: ScanReport, seconds: float) -> float:
    return report.url_count / seconds if seconds else 0.0
