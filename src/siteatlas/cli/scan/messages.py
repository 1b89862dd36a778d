"""What a scan prints on stderr at its end: five lines for a person, one for a log, or an error.

Errors name the site or file as it was typed, with advice; `terminal/errors.py` prints the
errors of other commands.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from siteatlas.cli.scan.output import EntryFilter, unfetched_children
from siteatlas.cli.terminal.context import current
from siteatlas.cli.terminal.errors import advice_for, print_error_with_advice
from siteatlas.cli.terminal.lines import ProblemLines, ShownProblem, plain_meaning
from siteatlas.cli.terminal.output import STATUS_STYLES, counted, percent, print_message
from siteatlas.errors import AddressError, DnsError, EgressDenied, SiteatlasError
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy, read_ip
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.report import ScanReport
from siteatlas.text import clean_text

MAX_LINES = 10
PARTIAL_STYLE = STATUS_STYLES["partial"]
# Below, the clock says more about itself than about the scan.
MIN_MEASURED_SECONDS = 0.05


def print_summary(report: ScanReport, dated: int, seconds: float) -> None:
    """Print the summary of a scan: sitemaps, URLs, dates, problems and time, a line each."""
    unread = _unread(report)
    print_message("")
    read = len(report.sitemaps) - unread
    _print_summary_value("sitemaps", f"{read:,} read" + (f", {unread:,} not" if unread else ""))
    repeated = sum(one.count for one in report.problems if one.code == ProblemCode.DUPLICATE_URL)
    once = f", {repeated:,} of them repeated within a sitemap" if repeated else ""
    _print_summary_value("URLs", f"{report.url_count:,}{once}")
    if report.url_count:
        _print_summary_value("lastmod", f"{percent(dated / report.url_count)} of the URLs have one")
    _print_summary_value("problems", problem_words(report))
    if report.partial:
        _print_summary_value("PARTIAL", ", ".join(report.reasons), style=PARTIAL_STYLE)
    _print_summary_value("time", _time_words(report, seconds))
    if current().verbosity:
        print_problems(report)
    elif report.problems:
        _print_summary_value("", "-v explains these codes and shows where they occur")


def print_summary_line(report: ScanReport, seconds: float) -> None:
    """Print the summary in a line, and a line for each of the first problems and faulty documents.

    With `-v` all of them follow, with samples.
    """
    partial = f", PARTIAL: {', '.join(report.reasons)}" if report.partial else ""
    print_message(
        f"{report.site}: {counted(report.url_count, 'URL')} in "
        f"{counted(len(report.sitemaps) - _unread(report), 'sitemap')}, "
        f"{_time_words(report, seconds)}{partial}.",
        style=PARTIAL_STYLE if report.partial else "",
    )
    if current().verbosity:
        print_problems(report)
        return
    lines = list(_fault_lines(report))
    for line in lines[:MAX_LINES]:
        print_message(f"  {line}")
    if len(lines) > MAX_LINES:
        print_message(f"  … and {len(lines) - MAX_LINES:,} more; -v shows all of them with samples")


def print_problems(report: ScanReport) -> None:
    """Print every problem and faulty document by code, with its meaning and samples."""
    lines = ProblemLines()
    for problem in sorted(_shown_problems(report), key=lambda problem: problem.code):
        for line in lines.of(problem):
            print_message(f"  {line}")


def _shown_problems(report: ScanReport) -> Iterator[ShownProblem]:
    for problem in report.problems:
        remark = problem.detail or ""
        yield ShownProblem(problem.code, problem.url, problem.count, problem.samples, remark)
    for sitemap in report.sitemaps:
        if sitemap.error_code:
            yield ShownProblem(sitemap.error_code, sitemap.url, 1, remark=sitemap.outcome)


def _fault_lines(report: ScanReport) -> Iterator[str]:
    for problem in report.problems:
        where = f" in {problem.url}" if problem.url else ""
        what = f": {problem.detail}" if problem.detail else ""
        meaning = plain_meaning(problem.code)
        yield f"{problem.code} ({problem.count:,}){where}{what}: {meaning}"
    for sitemap in report.sitemaps:
        if sitemap.error_code:
            yield f"{sitemap.error_code} in {sitemap.url}: {sitemap.outcome}"


def _unread(report: ScanReport) -> int:
    """Documents of which nothing was read; like the service, a scan does not count them."""
    return sum(sitemap.outcome == "unread" for sitemap in report.sitemaps)


def problem_words(report: ScanReport) -> str:
    """Problems by code, the most frequent first."""
    codes: Counter[str] = Counter()
    for problem in report.problems:
        codes[problem.code] += problem.count
    counted_codes = set(codes)
    codes.update(
        s.error_code for s in report.sitemaps if s.error_code and s.error_code not in counted_codes
    )
    if not codes:
        return "none"
    shown = [f"{code} ({count:,})" for code, count in codes.most_common(6)]
    more = len(codes) - len(shown)
    return ", ".join(shown) + (f" and {more} more kinds" if more else "")


def _print_summary_value(label: str, text: str, style: str = "") -> None:
    print_message(f"  {label.ljust(10)}{text}", style=style)


def _time_words(report: ScanReport, seconds: float) -> str:
    rate = round(report.url_count / seconds) if seconds >= MIN_MEASURED_SECONDS else 0
    return f"{seconds:.1f} s" + (f", {counted(rate, 'URL')} a second" if rate else "")


def print_unfetched_children(report: ScanReport) -> None:
    """Print that the sitemaps listed in a local index were not fetched, and how to read one."""
    children = unfetched_children(report)
    if children:
        count = counted(len(children), "sitemap")
        print_message(f"The file is an index of {count}; a scan of a local file fetches nothing.")
    # A relative child of a file has no site to fetch it from.
    schemes = ("http://", "https://")
    readable = next((c.url for c in children if c.url.lower().startswith(schemes)), None)
    if readable is not None:
        print_message(f"Read one: siteatlas scan --only {shlex.quote(readable)}")


def print_skipped_sitemaps(report: ScanReport) -> None:
    """Print how many sitemaps of indexes the filter of the scan left out, and why."""
    skipped = report.skipped_sitemaps or {}
    by_address, by_date = skipped.get("by_address", 0), skipped.get("by_date", 0)
    if by_address or by_date:
        print_message(
            f"{report.site}: not read because of the filter: {counted(by_address, 'sitemap')} by "
            f"address, {counted(by_date, 'sitemap')} by date."
        )


def print_filtered_count(wanted: EntryFilter) -> None:
    """Print how many URLs the filters left out, with advice if no URL matched `--include`."""
    if not wanted.left_out:
        return
    undated = f", {wanted.undated:,} of them without a lastmod" if wanted.undated else ""
    nothing_fits = wanted.include is not None and not wanted.kept
    advice = " A pattern must match the whole URL, such as '*blog*'." if nothing_fits else ""
    print_message(f"The filters left out {counted(wanted.left_out, 'URL')}{undated}.{advice}")


def print_scan_error(
    error: SiteatlasError, typed: str, policy: EgressPolicy, *, may_be_file: bool = True
) -> None:
    """Print one line that says what went wrong with what was typed, and one line of advice."""
    message = error.message
    advice = advice_for(error)
    if type(error) is EgressDenied:
        why, entry = policy.explain(error, parse_site(typed))
        message = f"{message.removesuffix('.')}: {why}"
        own = "If this is your own site, allow it: --allow"
        advice = f"{own} {shlex.quote(entry)}" if entry else None
    if may_be_file and _means_neither(error, typed):
        message = message.removesuffix(".") + ", and there is no file of this name here."
    print_error_with_advice(error, f"{shown_site(typed)}: {message}", advice)


def shown_site(typed: str) -> str:
    """What was typed, without a user name or password that it may contain."""
    return clean_text(f"***@{typed.rpartition('@')[2]}" if "@" in typed else typed)


def _means_neither(error: SiteatlasError, typed: str) -> bool:
    if "://" in typed:
        return False
    if isinstance(error, (EgressDenied, DnsError)):
        address = parse_site(typed)
        unusual = isinstance(error, DnsError) or "." not in address.host
        return unusual and not address.port_given and read_ip(address.host) is None
    return type(error) is AddressError
