"""Exports: the same rows as the lists, in every format, and an end that cannot be missed."""

from __future__ import annotations

import csv
import io
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest

from siteatlas.catalog.url_lists import UrlFilter
from siteatlas.catalog.urls import url_hash
from siteatlas.errors import CursorExpired, ParquetFailed
from siteatlas.export import streaming
from siteatlas.export.encoding import SCHEMAS, ChangeColumns, Exported, ExportFormat
from siteatlas.export.streaming import Export, ExportRequest, begin_export
from siteatlas.storage.models import Domain, FeedHead, UrlChange
from siteatlas.storage.session import Database
from tests.fixtures.changes import add_changes as add_changes_of
from tests.fixtures.changes import add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.parquet_processes import encoding_processes
from tests.fixtures.records import add_domain, add_job, add_scan, add_sitemap, add_urls

LASTMOD = datetime(2026, 1, 31, 12, 30, 0, 250, tzinfo=UTC)
EXTRAS = {
    "images": [{"loc": "https://example.com/a.png", "title": "A"}, {"loc": "/b.png"}],
    "alternates": [{"href": "https://example.com/de", "hreflang": "de"}],
    "news": {"publication": {"name": "Times", "language": "en"}, "title": "=1+1"},
    "videos": [{"title": "V", "content_loc": "https://example.com/v.mp4", "tag": ["x"]}],
    "mobile": True,
}
ROWS = 2_500


async def site_to_export() -> Domain:
    """One URL with everything in one document, and many plain ones in another."""
    async with transaction() as session:
        domain = await add_domain(session)
        rich, plain = (
            await add_sitemap(session, domain, "a"),
            await add_sitemap(session, domain, "b"),
        )
        url = "https://example.com/rich"
        await add_urls(
            session,
            rich.id,
            [(url_hash(url), url)],
            lastmod=LASTMOD,
            priority=0.8,
            changefreq="daily",
            extras=EXTRAS,
        )
        rows = [(n * 7919, f"https://example.com/{n}") for n in range(ROWS)]
        await add_urls(session, plain.id, rows)
        return domain


async def begun(request: ExportRequest) -> Export:
    """An export whose content has not been read yet."""
    async with transaction() as session:
        return await begin_export(session, request)


async def exported(request: ExportRequest) -> bytes:
    """The whole content of an export."""
    return await content_of(await begun(request))


async def content_of(export: Export) -> bytes:
    return b"".join([part async for part in export.content])


def csv_rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


async def test_csv_has_every_url_once_and_extras_as_columns(database: Database):
    domain = await site_to_export()
    rows = csv_rows(await exported(ExportRequest(Exported.URLS, ExportFormat.CSV, domain.id)))
    assert len(rows) == len({row["url"] for row in rows}) == ROWS + 1
    (rich,) = (row for row in rows if row["url"] == "https://example.com/rich")
    assert (rich["lastmod"], rich["priority"]) == ("2026-01-31T12:30:00.000250Z", "0.8")
    assert rich["images"] == "https://example.com/a.png /b.png"
    assert rich["videos"] == "https://example.com/v.mp4"
    assert rich["alternates"] == "de=https://example.com/de"
    assert (rich["news_publication_name"], rich["news_publication_language"]) == ("Times", "en")
    assert orjson.loads(rich["extras"]) == EXTRAS


async def test_no_cell_of_csv_is_a_formula(database: Database):
    domain = await site_to_export()
    content = await exported(ExportRequest(Exported.URLS, ExportFormat.CSV, domain.id))
    (rich,) = (row for row in csv_rows(content) if row["news_title"])
    assert rich["news_title"] == "'=1+1"


async def test_json_lines_end_with_a_line_that_counts_the_others(database: Database):
    domain = await site_to_export()
    content = await exported(ExportRequest(Exported.URLS, ExportFormat.JSONL, domain.id))
    *lines, last = map(orjson.loads, content.splitlines())
    assert (last["end"], last["count"], last["as_of_seq"]) == (True, ROWS + 1, 0)
    assert last["schema"] == "urls/1"
    assert len(lines) == ROWS + 1
    (rich,) = (line for line in lines if line["url"] == "https://example.com/rich")
    assert (rich["extras"], rich["domain"]) == (EXTRAS, "example.com")


async def test_parquet_opens_in_duckdb_with_its_types(database: Database, tmp_path: Path):
    domain = await site_to_export()
    path = tmp_path / "urls.parquet"
    path.write_bytes(await exported(ExportRequest(Exported.URLS, ExportFormat.PARQUET, domain.id)))
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT url), max(epoch_us(lastmod)), "
            "max(images[1].title), max(news.publication_name), max(priority) "
            f"FROM '{path}'"
        ).fetchone()
    moment = int(LASTMOD.timestamp()) * 1_000_000 + LASTMOD.microsecond
    assert found == (ROWS + 1, ROWS + 1, moment, "A", "Times", 0.8)
    file = pq.ParquetFile(path)
    assert file.schema_arrow.metadata[b"siteatlas.as_of_seq"] == b"0"
    assert file.schema_arrow.metadata[b"siteatlas.schema"] == b"urls/1"


async def test_parquet_that_was_cut_does_not_open(database: Database, tmp_path: Path):
    domain = await site_to_export()
    content = await exported(ExportRequest(Exported.URLS, ExportFormat.PARQUET, domain.id))
    path = tmp_path / "cut.parquet"
    path.write_bytes(content[:-100])
    with duckdb.connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(f"SELECT count(*) FROM '{path}'")


async def test_an_export_has_the_filters_of_the_list(database: Database):
    domain = await site_to_export()
    wanted = UrlFilter(prefix="https://example.com/24")
    request = ExportRequest(Exported.URLS, ExportFormat.CSV, domain.id, wanted)
    rows = csv_rows(await exported(request))
    assert len(rows) == 111
    assert all(row["url"].startswith("https://example.com/24") for row in rows)


async def add_changes(count: int) -> Domain:
    """Published scans with one change each."""
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        for number in range(1, count + 1):
            job = await add_job(session, domain)
            scan = await add_scan(session, domain, job, published_seq=number)
            session.add(
                UrlChange(
                    scan_id=scan.id,
                    sitemap_id=sitemap.id,
                    url_hash=number,
                    kind="added",
                    url=f"https://example.com/{number}",
                    after={"changefreq": "daily"},
                )
            )
        head = await session.get_one(FeedHead, 1)
        head.seq = count
        return domain


@pytest.mark.parametrize(("after", "expected"), [(None, [1, 2, 3]), (1, [2, 3]), (3, [])])
async def test_changes_are_exported_after_a_number(
    database: Database, after: int | None, expected: list[int]
):
    domain = await add_changes(3)
    request = ExportRequest(Exported.CHANGES, ExportFormat.CSV, domain.id, after=after)
    rows = csv_rows(await exported(request))
    assert [int(row["seq"]) for row in rows] == expected
    assert all(row["after"] == '{"changefreq":"daily"}' for row in rows)


@pytest.mark.parametrize(
    ("after", "until", "expected"), [(1, 2, [2]), (None, 9, [1, 2, 3]), (3, 1, [])]
)
async def test_changes_are_exported_up_to_a_number(
    database: Database, after: int | None, until: int, expected: list[int]
):
    domain = await add_changes(3)
    request = ExportRequest(Exported.CHANGES, ExportFormat.CSV, domain.id, after=after, until=until)
    assert [int(row["seq"]) for row in csv_rows(await exported(request))] == expected


async def add_mixed_changes() -> Domain:
    """Two scans: the first changed two dates and its robots.txt, the second removed a formula."""
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        dates = {
            "before": {"lastmod": "2026-01-31T00:00:00+00:00"},
            "after": {"lastmod": "2026-02-01T12:30:00+00:00"},
        }
        first = await add_published_scan(session, domain)
        for number, kind in ((3, "changed"), (1, "changed"), (2, "added")):
            await add_changes_of(
                session, first, sitemap, [number], kind, not_after=LASTMOD, **dates
            )
        await add_event(session, domain, "robots_changed", first, not_after=LASTMOD)
        second = await add_published_scan(session, domain)
        formula: dict[str, Any] = {"url": "=1+1", "before": {}, "after": None, "not_after": LASTMOD}
        await add_changes_of(session, second, sitemap, [1], "removed", **formula)
        return domain


@pytest.mark.parametrize("at_once", [2, 5_000])
async def test_short_columns_of_changes_are_for_people(
    database: Database, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(streaming, "MAX_LIMIT", at_once)
    domain = await add_mixed_changes()
    request = ExportRequest(
        Exported.CHANGES, ExportFormat.CSV, domain.id, columns=ChangeColumns.SHORT
    )
    rows = csv_rows(await exported(request))
    when, sitemap = "2026-01-31T12:30:00Z", "https://example.com/sitemap.xml"
    dates = ("2026-01-31", "2026-02-01T12:30:00Z")
    assert [tuple(row.values()) for row in rows] == [
        (when, "added", "https://example.com/2", sitemap, *dates),
        (when, "changed", "https://example.com/1", sitemap, *dates),
        (when, "changed", "https://example.com/3", sitemap, *dates),
        (when, "robots_changed", "example.com", "", "", ""),
        (when, "removed", "'=1+1", sitemap, "", ""),
    ]


async def test_a_scan_with_very_many_changes_is_sorted_in_parts(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streaming, "MAX_SORTED", 2)
    monkeypatch.setattr(streaming, "MAX_LIMIT", 2)
    async with transaction() as session:
        domain = await add_domain(session)
        scan = await add_published_scan(session, domain)
        sitemap = await add_sitemap(session, domain)
        for key, number in enumerate((4, 1, 3, 2)):
            url = f"https://example.com/{number}"
            await add_changes_of(session, scan, sitemap, [key], url=url)
    request = ExportRequest(
        Exported.CHANGES, ExportFormat.CSV, domain.id, columns=ChangeColumns.SHORT
    )
    assert [row["url"][-1] for row in csv_rows(await exported(request))] == ["1", "4", "2", "3"]


async def test_changes_end_at_the_number_of_the_start(database: Database):
    domain = await add_changes(2)
    export = await begun(ExportRequest(Exported.CHANGES, ExportFormat.JSONL, domain.id))
    async with transaction() as session:
        (await session.get_one(FeedHead, 1)).seq = 3
        sitemap = await add_sitemap(session, domain, "later")
        scan = await add_scan(session, domain, await add_job(session, domain), published_seq=3)
        later = {"kind": "added", "url": "https://example.com/3"}
        session.add(UrlChange(scan_id=scan.id, sitemap_id=sitemap.id, url_hash=3, **later))
    *lines, last = map(orjson.loads, (await content_of(export)).splitlines())
    assert ([line["seq"] for line in lines], last["as_of_seq"]) == ([1, 2], 2)


async def test_changes_that_are_removed_during_an_export_cut_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streaming, "MAX_LIMIT", 1)
    domain = await add_changes(3)
    export = await begun(ExportRequest(Exported.CHANGES, ExportFormat.JSONL, domain.id))
    parts: list[bytes] = []

    async def read_all() -> None:
        async for part in export.content:
            parts.append(part)
            if part:
                async with transaction() as session:
                    (await session.get_one(FeedHead, 1)).retained_from = 2

    with pytest.raises(CursorExpired):
        await read_all()
    assert b'"end"' not in b"".join(parts)


def test_the_columns_of_version_1_stay():
    names: dict[str, Any] = {
        schema.label: " ".join(column.name for column in schema.nested)
        for schema in SCHEMAS.values()
    }
    assert names == {
        "urls/1": "url domain sitemap sitemap_id lastmod lastmod_text changefreq priority "
        "first_seen_at removed_at images videos alternates news extras",
        "changes/1": "id seq kind domain url sitemap sitemap_id previous_sitemap "
        "previous_sitemap_id scan_id not_before not_after fields evidence before after data",
    }


async def test_parquet_whose_process_is_killed_has_no_end(database: Database):
    domain = await site_to_export()
    export = await begun(ExportRequest(Exported.URLS, ExportFormat.PARQUET, domain.id))
    assert await anext(export.content) == b"PAR1"
    (process,) = encoding_processes()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ParquetFailed):
        await content_of(export)


async def test_an_export_that_nobody_reads_to_its_end_leaves_no_process(database: Database):
    domain = await site_to_export()
    export = await begun(ExportRequest(Exported.URLS, ExportFormat.PARQUET, domain.id))
    assert not encoding_processes()
    await anext(export.content)
    assert len(encoding_processes()) == 1
    await export.content.aclose()
    assert not encoding_processes()


async def test_changes_keep_their_types_in_parquet(database: Database, tmp_path: Path):
    domain = await add_changes(3)
    path = tmp_path / "changes.parquet"
    request = ExportRequest(Exported.CHANGES, ExportFormat.PARQUET, domain.id)
    path.write_bytes(await exported(request))
    rows = pq.read_table(path).to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert {row["after"] for row in rows} == {'{"changefreq":"daily"}'}
    types = {field.name: str(field.type) for field in pq.read_schema(path)}
    assert (types["not_after"], types["fields"]) == (
        "timestamp[us, tz=UTC]",
        "list<element: string>",
    )
