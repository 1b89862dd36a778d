"""The report of a scan, made from the scanner's events."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from siteatlas.cli.terminal.output import json_bytes
from siteatlas.errors import NoSitemap
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    EntryColumns,
    ProblemSeen,
    RobotsRead,
    SitemapType,
    Verdict,
)
from siteatlas.scanner.report import ReportBuilder

INDEX = "https://a.example/index.xml"
CHILD = "https://a.example/child.xml"


def opened(url: str, parent: str | None = None) -> DocumentOpened:
    return DocumentOpened(
        url, url, DiscoveryMethod.ROBOTS_TXT, SitemapType.STANDARD, parent, 0, 200
    )


def closed(url: str, outcome: DocumentOutcome, **more: object) -> DocumentClosed:
    return DocumentClosed(url, url, outcome, DiscoveryMethod.ROBOTS_TXT, **more)  # type: ignore[arg-type]


def test_the_report_has_exactly_the_promised_fields():
    report = json.loads(json_bytes(ReportBuilder("a.example").report))
    assert list(report) == [
        "site",
        "status",
        "error_code",
        "url_count",
        "partial",
        "reasons",
        "sitemaps",
        "candidates",
        "problems",
        "skipped_sitemaps",
    ]


def test_entries_are_counted_and_not_kept():
    builder = ReportBuilder("a.example")
    builder.observe(EntriesRead(CHILD, EntryColumns(["u"] * 3)))
    builder.observe(EntriesRead(CHILD, EntryColumns(["u"] * 2)))
    assert builder.report.url_count == 5


def test_a_document_is_reported_when_it_is_closed_with_its_parent():
    builder = ReportBuilder("a.example")
    builder.observe(opened(CHILD, parent=INDEX))
    builder.observe(EntriesRead(CHILD, EntryColumns(["u"] * 7)))
    builder.observe(closed(CHILD, DocumentOutcome.COMPLETE, entry_count=9, problems={"bad": 2}))
    (sitemap,) = builder.report.sitemaps
    assert (sitemap.url, sitemap.parent, sitemap.url_count) == (CHILD, INDEX, 7)
    assert sitemap.status == "completed"
    assert [(p.code, p.count) for p in builder.report.problems] == [("bad", 2)]


def test_a_document_counts_the_entries_that_were_wanted_of_it():
    builder = ReportBuilder("a.example")
    builder.observe(opened(CHILD))
    builder.observe(EntriesRead(CHILD, EntryColumns(["u"], [None], [None], [None], [None])))
    builder.observe(closed(CHILD, DocumentOutcome.COMPLETE, entry_count=100))
    assert builder.report.sitemaps[0].url_count == 1


def test_an_interrupted_scan_reports_what_was_being_read():
    builder = ReportBuilder("a.example")
    builder.observe(opened(INDEX))
    builder.observe(opened(CHILD, parent=INDEX))
    builder.observe(EntriesRead(CHILD, EntryColumns(["u"] * 3)))
    builder.interrupt()
    assert builder.report.status == "cancelled"
    ends = [(s.url, s.outcome, s.url_count, s.error_code) for s in builder.report.sitemaps]
    assert ends == [(INDEX, "unread", 0, "cancelled"), (CHILD, "cut", 3, "cancelled")]


def test_dates_are_counted():
    builder = ReportBuilder("a.example")
    today = datetime(2026, 1, 1, tzinfo=UTC)
    builder.observe(EntriesRead(CHILD, EntryColumns(["a", "b", "c"], [today, None, today])))
    assert (builder.report.url_count, builder.dated_count) == (3, 2)


def test_an_unread_document_is_failed_with_its_reason():
    builder = ReportBuilder("a.example")
    builder.observe(closed(CHILD, DocumentOutcome.UNREAD, error_code="timeout"))
    (sitemap,) = builder.report.sitemaps
    assert (sitemap.status, sitemap.error_code) == ("failed", "timeout")


def test_children_of_an_index_are_expected_before_they_are_read():
    builder = ReportBuilder("a.example")
    builder.observe(opened(INDEX))
    builder.observe(ChildrenFound(INDEX, (ChildLink(CHILD), ChildLink(CHILD + "2"))))
    builder.observe(opened(CHILD, parent=INDEX))
    assert builder.documents_expected == 3


def test_candidates_and_problems_are_kept():
    builder = ReportBuilder("a.example")
    builder.observe(
        CandidateJudged(CHILD, DiscoveryMethod.COMMON_PATH, Verdict.REJECTED, "soft_404", 200)
    )
    builder.observe(ProblemSeen("max_urls_reached"))
    assert [c.reason for c in builder.report.candidates] == ["soft_404"]
    assert [p.code for p in builder.report.problems] == ["max_urls_reached"]


def test_a_failed_scan_says_why():
    builder = ReportBuilder("a.example")
    builder.report.fail(NoSitemap())
    assert (builder.report.status, builder.report.error_code) == ("failed", "no_sitemap")


def test_documents_are_listed_as_they_were_named_and_not_as_they_were_read():
    builder = ReportBuilder("a.example")
    second = CHILD.replace("child", "second")
    builder.observe(opened(INDEX))
    builder.observe(ChildrenFound(INDEX, (ChildLink(CHILD), ChildLink(second))))
    for url in (second, CHILD):
        builder.observe(closed(url, DocumentOutcome.COMPLETE, parent_url=INDEX))
    builder.observe(closed(INDEX, DocumentOutcome.COMPLETE))
    builder.sort_sitemaps()
    assert [sitemap.url for sitemap in builder.report.sitemaps] == [INDEX, CHILD, second]


def test_documents_of_robots_txt_are_listed_in_its_order_however_it_spells_them():
    builder = ReportBuilder("a.example")
    named = ("/first.xml", "https://A.example:443/second.xml", "not a url:")
    builder.observe(RobotsRead("https://a.example/robots.txt", 200, named))
    for name in ("second", "first"):
        builder.observe(closed(f"https://a.example/{name}.xml", DocumentOutcome.COMPLETE))
    builder.sort_sitemaps()
    found = [sitemap.url.rpartition("/")[2] for sitemap in builder.report.sitemaps]
    assert found == ["first.xml", "second.xml"]
