"""The conductor: several scans into one stream, ended early without a torn line."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from siteatlas.cli.scan.output import DirectSink, EntryFilter, ScanFormat, encoders_for
from siteatlas.cli.scan.runner import ScanRunner, ScanTarget
from siteatlas.errors import NoSitemap, OutputClosed
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentOpened,
    DocumentRequested,
    EntriesRead,
    EntryColumns,
    ScanEvent,
    SitemapType,
)
from tests.fixtures.waiting import wait_until

SITEMAP = "https://a.example/sitemap.xml"


def entries(*paths: str) -> EntriesRead:
    nothing: list[None] = [None] * len(paths)
    urls = [f"https://a.example{path}" for path in paths]
    return EntriesRead(SITEMAP, EntryColumns(urls, [*nothing], [*nothing], [*nothing], [*nothing]))


OPENED = DocumentOpened(
    SITEMAP, SITEMAP, DiscoveryMethod.ROBOTS_TXT, SitemapType.STANDARD, None, 0, 200
)


async def small_site() -> AsyncGenerator[ScanEvent, None]:
    yield OPENED
    yield entries("/1", "/2")
    yield entries("/3")


async def endless_site() -> AsyncGenerator[ScanEvent, None]:
    yield OPENED
    yield entries("/1")
    await asyncio.Event().wait()


async def empty_site() -> AsyncGenerator[ScanEvent, None]:
    raise NoSitemap
    yield OPENED


async def listed(*targets: ScanTarget) -> AsyncIterator[ScanTarget]:
    for target in targets:
        yield target


class Stage:
    """A conductor with a sink that remembers."""

    def __init__(
        self,
        format: ScanFormat,
        *,
        many: bool = False,
        wanted: EntryFilter | None = None,
        max_urls: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.written = bytearray()
        form = encoders_for(format, many=many, terminal=False)
        sink = DirectSink(self.written.extend)
        self.conductor = ScanRunner(
            sink, form, wanted or EntryFilter(), max_urls=max_urls, timeout=timeout
        )

    async def run(self, *targets: ScanTarget) -> str:
        await self.conductor.run(listed(*targets))
        await self.conductor.finish()
        return self.written.decode()


async def test_entries_are_written_and_counted():
    stage = Stage(ScanFormat.URLS)
    written = await stage.run(ScanTarget("a.example", small_site))
    assert written.splitlines() == [f"https://a.example/{n}" for n in (1, 2, 3)]
    (ended,) = stage.conductor.ended
    assert (ended.builder.report.status, ended.builder.report.url_count) == ("completed", 3)


async def test_many_sites_are_one_list_in_json():
    stage = Stage(ScanFormat.JSON, many=True)
    written = await stage.run(
        ScanTarget("a.example", small_site),
        ScanTarget("b.example", empty_site),
        ScanTarget("c", small_site),
    )
    found = {one["site"]: one["status"] for one in json.loads(written)["items"]}
    assert found == {"a.example": "completed", "b.example": "failed", "c": "completed"}


async def test_a_list_without_sites_is_still_valid_json():
    stage = Stage(ScanFormat.JSON, many=True)
    assert json.loads(await stage.run()) == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("seconds", [None, 100.0])
async def test_another_timeout_is_not_reported_as_that_of_the_scan(seconds: float | None):
    async def broken_site() -> AsyncGenerator[ScanEvent, None]:
        raise TimeoutError("something else")
        yield OPENED

    with pytest.raises(TimeoutError, match="something else"):
        await Stage(ScanFormat.URLS, timeout=seconds).run(ScanTarget("a.example", broken_site))


async def test_a_failed_site_does_not_stop_the_others():
    stage = Stage(ScanFormat.URLS, many=True)
    await stage.run(ScanTarget("b.example", empty_site), ScanTarget("a.example", small_site))
    errors = {ended.target.name: ended.error for ended in stage.conductor.ended}
    assert isinstance(errors["b.example"], NoSitemap)
    assert errors["a.example"] is None


async def test_stopping_keeps_what_was_found_and_starts_nothing_new():
    stage = Stage(ScanFormat.JSON, many=True)
    targets = [ScanTarget(str(n), endless_site) for n in range(10)]
    running = asyncio.create_task(stage.run(*targets))
    active = stage.conductor.active
    await wait_until(lambda: sum(run.builder.report.url_count for run in active) == 4)
    stage.conductor.stop()
    items = json.loads(await asyncio.wait_for(running, 5))["items"]
    assert [(item["status"], item["url_count"]) for item in items] == [("cancelled", 1)] * 4
    assert all(item["sitemaps"][0]["outcome"] == "cut" for item in items)


async def test_with_a_filter_the_limit_is_for_what_passes_it():
    wanted = EntryFilter.of(None, [], ["*/1"])
    stage = Stage(ScanFormat.URLS, wanted=wanted, max_urls=1)
    assert await stage.run(ScanTarget("a.example", small_site)) == "https://a.example/2\n"
    report = stage.conductor.ended[0].builder.report
    assert [problem.code for problem in report.problems] == ["url_limit"]
    assert report.sitemaps[0].error_code == "url_limit"


async def test_a_closed_output_ends_everything():
    def refuse(data: bytes) -> None:
        if data:
            raise BrokenPipeError

    form = encoders_for(ScanFormat.URLS, many=True, terminal=False)
    conductor = ScanRunner(DirectSink(refuse), form, EntryFilter())
    with pytest.raises(OutputClosed):
        await conductor.run(listed(ScanTarget("a", endless_site), ScanTarget("b", endless_site)))


async def silent_site() -> AsyncGenerator[ScanEvent, None]:
    yield DocumentRequested(SITEMAP, DiscoveryMethod.ROBOTS_TXT)
    await asyncio.Event().wait()


async def half_silent_site() -> AsyncGenerator[ScanEvent, None]:
    yield DocumentRequested(f"{SITEMAP}.gz", DiscoveryMethod.ROBOTS_TXT)
    async for event in endless_site():
        yield event


async def test_a_scan_ends_at_its_timeout_with_what_was_read():
    stage = Stage(ScanFormat.URLS, timeout=0.1)
    assert await stage.run(ScanTarget("a.example", half_silent_site)) == "https://a.example/1\n"
    (ended,) = stage.conductor.ended
    report = ended.builder.report
    assert ended.error is None
    assert (report.status, report.partial) == ("completed", True)
    assert report.reasons == ["scan_timeout"]
    assert {(s.url, s.outcome, s.error_code) for s in report.sitemaps} == {
        (SITEMAP, "cut", "scan_timeout"),
        (f"{SITEMAP}.gz", "unread", "scan_timeout"),
    }


async def test_a_scan_that_read_nothing_by_its_timeout_has_failed():
    stage = Stage(ScanFormat.URLS, timeout=0.1)
    await stage.run(ScanTarget("a.example", silent_site))
    (ended,) = stage.conductor.ended
    assert ended.error is not None
    assert ended.error.code == "scan_timeout"
    assert "0.1 seconds" in ended.error.message
    assert (ended.builder.report.status, ended.builder.report.error_code) == (
        "failed",
        "scan_timeout",
    )


async def test_entries_of_several_sites_name_their_site():
    stage = Stage(ScanFormat.JSONL, many=True)
    written = await stage.run(
        ScanTarget("a.example", small_site), ScanTarget("b.example", small_site)
    )
    sites = [json.loads(line)["site"] for line in written.splitlines()]
    assert sorted(sites) == ["a.example"] * 3 + ["b.example"] * 3
    stage = Stage(ScanFormat.CSV, many=True)
    rows = list(csv.DictReader((await stage.run(ScanTarget("a.example", small_site))).splitlines()))
    assert next(iter(rows[0])) == "site"
    assert [row["site"] for row in rows] == ["a.example"] * 3
    alone = Stage(ScanFormat.JSONL)
    assert "site" not in json.loads((await alone.run(ScanTarget("a", small_site))).splitlines()[0])
