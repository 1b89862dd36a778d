"""The report of a scan in the Python API: warnings, strict mode, and a single document."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import aclosing, closing

import pytest

import siteatlas
from siteatlas import (
    NoSitemap,
    PartialScan,
    PartialScanWarning,
    SiteatlasError,
    scan,
    scan_sync,
)
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site

GOOD = urlset_of(f"https://a.example/{number}" for number in range(3))


def site_of(pages: Pages) -> Iterator[SiteServer]:
    with running_site(pages) as running:
        yield running


@pytest.fixture
def whole() -> Iterator[SiteServer]:
    yield from site_of(
        {
            "/robots.txt": "Sitemap: {base}/good.xml\nSitemap: {base}/index.xml\n",
            "/good.xml": GOOD,
            "/index.xml": index_of(["{base}/child.xml"]).decode(),
            "/child.xml": urlset_of(["https://a.example/child"]),
        }
    )


@pytest.fixture
def broken() -> Iterator[SiteServer]:
    yield from site_of(
        {
            "/robots.txt": "Sitemap: {base}/good.xml\nSitemap: {base}/missing.xml\n",
            "/good.xml": GOOD,
        }
    )


@pytest.fixture
def empty() -> Iterator[SiteServer]:
    yield from site_of({})


def test_a_complete_scan_reports_its_documents_and_warns_of_nothing(whole: SiteServer):
    entries = scan_sync(whole.base, allow=whole.host_port)
    assert (entries.report.status, entries.report.url_count) == ("processing", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(entries)) == 4
    report = entries.report
    assert (report.status, report.url_count, report.partial) == ("completed", 4, False)
    outcomes = {s.url.removeprefix(whole.base): s.outcome for s in report.sitemaps}
    assert outcomes == dict.fromkeys(["/good.xml", "/index.xml", "/child.xml"], "complete")


def test_a_lost_document_warns_where_the_entries_are_read(broken: SiteServer):
    entries = scan_sync(broken.base, allow=broken.host_port)
    with pytest.warns(PartialScanWarning, match="http_not_found") as caught:
        assert len(list(entries)) == 3
    (warning,) = caught
    assert warning.filename == __file__
    assert isinstance(warning.message, PartialScanWarning)
    assert warning.message.report is entries.report
    assert (entries.report.status, entries.report.partial) == ("completed", True)
    assert entries.report.reasons == ["http_not_found"]


async def test_a_lost_document_warns_in_a_loop_too(broken: SiteServer):
    entries = scan(broken.base, allow=broken.host_port)
    with pytest.warns(PartialScanWarning) as caught:
        assert len([entry async for entry in entries]) == 3
    assert caught[0].filename == __file__
    assert entries.report.reasons == ["http_not_found"]


async def test_a_strict_scan_raises_after_the_last_entry(broken: SiteServer):
    entries = scan_sync(broken.base, allow=broken.host_port, strict=True)
    assert [next(entries).url for _ in range(3)]
    with pytest.raises(PartialScan) as raised:
        next(entries)
    assert raised.value.code == "partial_scan"
    assert raised.value.report is not None
    assert raised.value.report.reasons == ["http_not_found"]
    with pytest.raises(PartialScan):
        [entry async for entry in scan(broken.base, allow=broken.host_port, strict=True)]


def test_a_limit_of_the_caller_is_in_the_report_and_no_surprise(whole: SiteServer):
    entries = scan_sync(whole.base, allow=whole.host_port, max_urls=2, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(entries)) == 2
    assert (entries.report.partial, entries.report.reasons) == (True, ["url_limit"])


def test_the_report_of_a_failed_scan_says_why(empty: SiteServer):
    entries = scan_sync(empty.base, allow=empty.host_port)
    with pytest.raises(NoSitemap):
        list(entries)
    assert (entries.report.status, entries.report.error_code) == ("failed", "no_sitemap")


async def test_a_scan_that_is_closed_early_reports_that(whole: SiteServer):
    with closing(scan_sync(whole.base, allow=whole.host_port)) as entries:
        next(entries)
    assert (entries.report.status, entries.report.partial) == ("cancelled", True)
    async with aclosing(scan(whole.base, allow=whole.host_port)) as async_entries:
        await anext(async_entries)
    assert async_entries.report.status == "cancelled"


async def test_a_cancelled_task_ends_its_scan(whole: SiteServer):
    entries = scan(whole.base, allow=whole.host_port)
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in entries:
            reading.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await entries.aclose()
    assert entries.report.status == "cancelled"


def test_only_the_named_document_is_read(whole: SiteServer):
    entries = scan_sync(f"{whole.base}/good.xml", only=True, allow=whole.host_port)
    assert len(list(entries)) == 3
    assert whole.paths == ["/robots.txt", "/good.xml"]
    whole.requests.clear()
    children = scan_sync(f"{whole.base}/index.xml", only=True, allow=whole.host_port)
    assert [entry.url for entry in children] == ["https://a.example/child"]
    assert whole.paths == ["/robots.txt", "/index.xml", "/child.xml"]


def test_what_a_user_catches_comes_from_the_package_itself():
    assert set(dir(siteatlas)) == set(siteatlas.__all__)
    assert issubclass(siteatlas.NoSitemap, SiteatlasError)
    for name in siteatlas.__all__:
        assert getattr(siteatlas, name) is not None
