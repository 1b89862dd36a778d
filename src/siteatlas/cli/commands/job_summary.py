"""A readable summary of a job: status, results, what is missing and what to do about it.

Owns the texts of `jobs show` and `jobs watch`; `--json` prints the raw object.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rich.text import Text

from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.drawing import console_for, status_text
from siteatlas.cli.terminal.errors import advice_for
from siteatlas.cli.terminal.output import (
    Column,
    ColumnKind,
    cell_text,
    is_terminal,
    percent,
    write_table,
)
from siteatlas.cli.terminal.tables import relative_time, shorten_middle
from siteatlas.errors import error_classes
from siteatlas.insights.jobs import AttemptView, JobView
from siteatlas.insights.scan_documents import ScanDocumentView
from siteatlas.safe_text import printable
from siteatlas.storage.models import JobStatus, SitemapScanState

MAX_SITEMAPS_SHOWN = 5
LABEL_WIDTH = 10
DOCUMENT_LABELS = {SitemapScanState.UNREAD: "not read", SitemapScanState.CUT: "truncated"}
ATTEMPT_COLUMNS = [
    Column("ATTEMPT", right=True),
    Column("OUTCOME", kind=ColumnKind.STATUS),
    Column("ENDED", kind=ColumnKind.AGE),
    Column("WORKER"),
    Column("ERROR"),
]

Line = tuple[str, str]


def result_of(job: JobView) -> dict[str, Any]:
    """What a job found, which may be little while it runs."""
    return job.result_data or {}


def is_partial(job: JobView) -> bool:
    """Whether a scan lost something of its site."""
    return bool(result_of(job).get("partial"))


def shown_status(job: JobView) -> str:
    """The status that `siteatlas jobs` prints: partial, if the scan lost something."""
    return "partial" if is_partial(job) else job.status


def write_summary(
    job: JobView,
    attempts: Sequence[AttemptView] = (),
    documents: Sequence[ScanDocumentView] = (),
) -> None:
    """Print the job with the documents that it could not read, and its attempts if several."""
    console = console_for(sys.stdout)
    width = console.width if is_terminal(sys.stdout) else None
    for label, text in summary_lines(job, datetime.now(UTC), width, documents):
        head = Text().append(f"{label:<{LABEL_WIDTH}}", style="bold")
        console.print(
            head.append_text(_styled_summary_value(label, printable(text))), soft_wrap=True
        )
    if len(attempts) > 1:
        write_table(
            ATTEMPT_COLUMNS,
            ((a.attempt, a.outcome, a.ended_at, a.worker_id, a.error_code) for a in attempts),
        )


def _styled_summary_value(label: str, text: str) -> Text:
    """A value in the summary of `siteatlas jobs show`; a status has its colour."""
    if label != "status":
        return Text(text)
    word, colon, rest = text.partition(":")
    return Text().append_text(status_text(word)).append(colon + rest)


def summary_lines(
    job: JobView,
    now: datetime,
    width: int | None,
    documents: Sequence[ScanDocumentView] = (),
) -> Iterator[Line]:
    """The lines of a summary; URLs are shortened to a width, if there is one."""
    yield "job", f"{job.id} ({job.job_id})"
    yield "site", job.domain or "-"
    if scan_id := result_of(job).get("scan_id"):
        yield "scan", str(scan_id)
    yield "status", _status(job)
    yield from _not_read(job, documents, width)
    yield from _found(job, width)
    yield from _times(job, now)
    if job.attempt > 1 or job.status == JobStatus.FAILED:
        yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield from _error(job)


def _status(job: JobView) -> str:
    """The status line of `siteatlas jobs show`: reasons if partial, progress if running."""
    if is_partial(job):
        return f"partial: {', '.join(result_of(job).get('reasons') or [])}"
    if job.status == JobStatus.PROCESSING:
        asked = ", asked to stop" if job.cancel_requested_at else ""
        return f"processing: {percent(job.progress)}{asked}"
    return job.status


def _not_read(
    job: JobView, documents: Sequence[ScanDocumentView], width: int | None
) -> Iterator[Line]:
    """The first documents that a scan could not read to their end, and how to see all of them."""
    label = ""
    for document in islice(documents, MAX_SITEMAPS_SHOWN):
        earlier, label = label, DOCUMENT_LABELS.get(document.state, document.state.value)
        code = document.error_code or document.state.value
        space = None if width is None else width - LABEL_WIDTH - len(code) - 2
        shown = document.url if space is None else shorten_middle(printable(document.url), space)
        yield "" if label == earlier else label, f"{code}  {shown}"
    if documents:
        yield "", f"All sitemaps: siteatlas sitemaps {job.domain}"


def _found(job: JobView, width: int | None) -> Iterator[Line]:
    """The lines of `siteatlas jobs show` about the URLs and sitemaps that a job found."""
    result = result_of(job)
    urls, sitemaps = int(result.get("url_count") or 0), int(result.get("sitemap_count") or 0)
    if not urls and job.status != JobStatus.COMPLETED:
        return
    yield "found", f"{counted(urls, 'URL')} in {counted(sitemaps, 'sitemap')}"
    distinct = int(result.get("distinct_url_count") or urls)
    if distinct < urls:
        yield "", f"{distinct:,} of them distinct"
    if result.get("max_pages"):
        yield "limit", counted(int(result["max_pages"]), "URL")
    yield from _largest(job, sitemaps, width)


def _largest(job: JobView, total: int, width: int | None) -> Iterator[Line]:
    """The largest sitemaps with their counts, and how to see the others."""
    listed = [
        (str(one.get("url")), f"{int(one.get('url_count') or 0):,}")
        for one in islice(result_of(job).get("sitemaps") or [], MAX_SITEMAPS_SHOWN)
    ]
    room = max((len(count) for _, count in listed), default=0)
    for number, (url, count) in enumerate(listed):
        space = None if width is None else width - LABEL_WIDTH - room - 2
        shown = url if space is None else shorten_middle(printable(url), space)
        yield "largest" if number == 0 else "", f"{count:>{room}}  {shown}"
    if total > len(listed):
        more = f"… and {total - len(listed):,} more" if listed else f"{total:,} in all"
        yield "", f"{more}: siteatlas sitemaps {job.domain}"


def _times(job: JobView, now: datetime) -> Iterator[Line]:
    """The lines of `siteatlas jobs show` about when a job was created, started and finished."""
    yield "created", _moment(job.created_at, now)
    if job.status == JobStatus.PENDING and job.run_at > now:
        yield "due", _moment(job.run_at, now)
    if job.started_at:
        yield "started", _moment(job.started_at, now)
    if job.finished_at:
        took = (job.finished_at - (job.started_at or job.created_at)).total_seconds()
        yield "finished", f"{_moment(job.finished_at, now)}, took {took:.1f} s"


def _moment(moment: datetime, now: datetime) -> str:
    """A time in a job summary: the date, and how long ago that is."""
    return f"{cell_text(moment)} ({relative_time(moment, now)})"


def _error(job: JobView) -> Iterator[Line]:
    """The lines of `siteatlas jobs show` about the error of a job and what to do about it."""
    if not job.error_code:
        return
    yield "error", f"{job.error_code}: {' '.join((job.error or '').split())}".rstrip(": ")
    advice = advice_for_failed_job(job.error_code)
    if advice:
        yield "", advice
    if job.status in {JobStatus.FAILED, JobStatus.CANCELLED}:
        yield "", f"Try again: siteatlas jobs retry {job.id}"


def advice_for_failed_job(code: str) -> str | None:
    """The advice that `siteatlas jobs show` prints for the error code of a job."""
    kinds = (kind for kind in error_classes() if kind.code == code)
    return next((advice_for(kind()) for kind in kinds), None)
