"""One job for people, from a view alone."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from siteatlas.catalog.sitemaps import DocumentRead
from siteatlas.cli.commands.jobs import IdleNotice, summary_lines, watch_exit_code, write_summary
from siteatlas.cli.terminal.options import FailOn
from siteatlas.queue.views import AttemptView, JobView
from siteatlas.storage.models import AttemptOutcome, JobStatus, SitemapScanState

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
USER = UUID(int=1)


def sitemaps(number: int) -> list[dict[str, Any]]:
    return [{"url": f"https://a.example/{n}.xml", "url_count": 1000 - n} for n in range(number)]


FOUND: dict[str, Any] = {
    "domain": "a.example",
    "max_pages": None,
    "sitemap_count": 201,
    "url_count": 20_000,
    "distinct_url_count": 19_000,
    "partial": False,
    "reasons": [],
    "sitemaps": sitemaps(100),
}
DONE = JobView(
    job_id=UUID(int=7),
    id=7,
    job_type="sitemap",
    status=JobStatus.COMPLETED,
    progress=1.0,
    domain="a.example",
    domain_id=None,
    created_by=USER,
    result_data=FOUND,
    error=None,
    error_code=None,
    attempt=1,
    max_attempts=5,
    priority=0,
    run_at=NOW - timedelta(hours=2),
    worker_id=None,
    cancel_requested_at=None,
    created_at=NOW - timedelta(hours=2),
    started_at=NOW - timedelta(hours=2),
    finished_at=NOW - timedelta(hours=2) + timedelta(seconds=4),
    updated_at=NOW,
    shared=False,
    requested_by=[],
    requests=1,
)
PARTIAL = replace(DONE, result_data=FOUND | {"partial": True, "reasons": ["truncated", "timeout"]})
FAILED = replace(
    DONE,
    status=JobStatus.FAILED,
    result_data={"domain": "a.example"},
    error_code="no_sitemap",
    error="No sitemap was found.",
)


def document(number: int, state: SitemapScanState) -> DocumentRead:
    """A document that a scan could not read to its end."""
    return DocumentRead(
        sitemap_id=UUID(int=number),
        scan_id=1,
        state=state,
        http_status=503,
        error_code="server_error",
        url_count=0,
        wire_bytes=0,
        seconds=0.1,
        finished_at=NOW,
        url=f"https://a.example/{number}.xml",
    )


def lines(job: JobView, width: int | None = None) -> list[tuple[str, str]]:
    return list(summary_lines(job, NOW, width))


def test_a_completed_job_shows_what_was_found_and_how_long_it_took():
    shown = dict(lines(DONE))
    assert shown["status"] == "completed"
    assert shown["found"] == "20,000 URLs in 201 sitemaps"
    assert shown["finished"] == "2026-11-16 10:00:04Z (1 h ago), took 4.0 s"


def test_a_job_names_the_scan_that_it_published():
    published = replace(DONE, result_data=FOUND | {"scan_id": 12})
    assert ("scan", "12") in lines(published)
    assert "scan" not in dict(lines(FAILED))


def test_only_the_largest_sitemaps_are_listed_with_the_way_to_the_others():
    texts = [text for _, text in lines(DONE)]
    assert [text for text in texts if ".xml" in text] == [
        "1,000  https://a.example/0.xml",
        *(f"{1000 - n:>5}  https://a.example/{n}.xml" for n in range(1, 5)),
    ]
    (others,) = [text for text in texts if text.endswith(": siteatlas sitemaps a.example")]
    assert " 196 " in others


def test_a_partial_job_says_so_and_why():
    assert ("status", "partial: truncated, timeout") in lines(PARTIAL)


def test_a_partial_job_names_the_first_documents_that_were_not_read():
    states = [SitemapScanState.UNREAD] * 3 + [SitemapScanState.CUT] * 4
    documents = [document(number, state) for number, state in enumerate(states)]
    shown = list(summary_lines(PARTIAL, NOW, None, documents))
    first = shown.index(("not read", "server_error  https://a.example/0.xml"))
    assert shown[first + 1 : first + 6] == [
        ("", "server_error  https://a.example/1.xml"),
        ("", "server_error  https://a.example/2.xml"),
        ("truncated", "server_error  https://a.example/3.xml"),
        ("", "server_error  https://a.example/4.xml"),
        ("", "All sitemaps: siteatlas sitemaps a.example"),
    ]


def test_a_failed_job_says_why_and_what_to_do():
    shown = lines(FAILED)
    error = shown.index(("error", "no_sitemap: No sitemap was found."))
    assert shown[error + 1][0] == ""
    assert shown[error + 2][1].endswith(": siteatlas jobs retry 7")
    assert "found" not in dict(shown)


def test_a_job_that_waits_for_its_next_attempt_says_when():
    waiting = replace(
        FAILED,
        status=JobStatus.PENDING,
        run_at=NOW + timedelta(minutes=5),
        attempt=2,
        finished_at=None,
    )
    shown = dict(lines(waiting))
    assert shown["due"] == "2026-11-16 12:05:00Z (in 5 min)"
    assert shown["attempt"] == "2 of 5"


def test_urls_are_shortened_to_the_terminal_and_nowhere_else():
    long = "https://a.example/" + "x" * 200 + ".xml"
    data = FOUND | {"sitemaps": [{"url": long, "url_count": 3}]}
    job = replace(DONE, result_data=data)
    assert any(text == f"3  {long}" for _, text in lines(job))
    assert all(len(text) <= 70 for _, text in lines(job, 80))


def test_one_line_of_a_summary_stays_one_line_in_a_pipe(capsys):
    job = replace(FAILED, error="word " * 100)
    write_summary(job)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == len(lines(job))


def test_a_site_cannot_steer_the_terminal_through_a_summary(capsys):
    write_summary(replace(FAILED, error="\x1b[2J [red]gone[/red]"))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\\x1b[2J [red]gone[/red]" in printed


def test_partial_has_a_colour_of_its_own_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    write_summary(PARTIAL)
    assert re.search(r"\x1b\[33mpartial\x1b\[0m: truncated", terminal.getvalue())


@pytest.mark.parametrize(("number", "shown"), [(1, False), (2, True)])
def test_attempts_are_listed_when_there_were_several(number: int, shown: bool, capsys):
    attempt = AttemptView(1, "host-1", NOW, NOW, AttemptOutcome.FAILED, "timeout", "slow")
    write_summary(FAILED, [attempt] * number)
    assert ("OUTCOME" in capsys.readouterr().out) is shown


@pytest.mark.parametrize(
    ("job", "fail_on", "code"),
    [
        (DONE, FailOn.FAILED, 0),
        (DONE, FailOn.PARTIAL, 0),
        (PARTIAL, FailOn.FAILED, 0),
        (PARTIAL, FailOn.PARTIAL, 1),
        (FAILED, FailOn.FAILED, 1),
        (replace(DONE, status=JobStatus.PROCESSING), FailOn.FAILED, 1),
    ],
)
def test_the_exit_code_of_watching_depends_on_the_end_of_the_job(job, fail_on, code: int):
    assert watch_exit_code(job, fail_on) == code


@pytest.mark.parametrize(
    ("job", "fail_on", "code"),
    [(DONE, FailOn.PARTIAL, 0), (DONE, FailOn.PROBLEMS, 1), (PARTIAL, FailOn.PROBLEMS, 1)],
)
def test_problems_of_the_site_count_only_if_that_was_asked_for(job, fail_on, code: int):
    assert watch_exit_code(job, fail_on, problems=True) == code


def test_a_missing_worker_is_reported_once_until_one_starts(capsys):
    notice = IdleNotice()
    for served in (False, False, True, False):
        notice.notice(DONE, served=served)
    assert capsys.readouterr().err.count("siteatlas serve") == 2
