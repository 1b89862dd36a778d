"""Metrics for Prometheus: complete, readable, and there without a database too."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from siteatlas.access.audit import record_command
from siteatlas.meters import meters
from siteatlas.queue.metrics import queue_metrics
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import pages, scan_server, urlset
from tests.fixtures.queue import submit
from tests.fixtures.records import add_domain
from tests.fixtures.site_server import SiteServer


def samples(page: str) -> dict[str, float]:
    """Each sample as it is written, such as `siteatlas_jobs{status="failed"}`."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def families(page: str) -> dict[str, Metric]:
    """The metrics of a page by name, read by the parser of the Prometheus library."""
    read = text_string_to_metric_families(page)
    return {one.name + ("_total" if one.type == "counter" else ""): one for one in read}


async def test_the_page_has_the_form_that_prometheus_reads(client: httpx.AsyncClient):
    response = await client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(response.text)
    assert {one.type for one in found.values()} == {"gauge", "counter", "histogram"}
    assert [name for name, one in found.items() if not one.documentation] == []
    assert response.text.endswith("\n")


async def test_names_carry_the_project_and_the_unit(client: httpx.AsyncClient):
    found = families((await client.get("/metrics")).text)
    assert [name for name in found if not name.startswith(("siteatlas_", "process_"))] == []
    times = {name for name, one in found.items() if one.type == "histogram"}
    assert times == {f"siteatlas_{one}_duration_seconds" for one in ("fetch", "write", "claim")} | {
        "siteatlas_http_request_duration_seconds"
    }
    # Families of gauges never end like counters.
    gauges = [name for name, one in found.items() if one.type == "gauge"]
    assert [name for name in gauges if name.endswith(("_total", "_count", "_sum"))] == []


async def test_the_queue_is_counted_by_status_with_the_age_of_what_waits(
    client: httpx.AsyncClient,
):
    await submit("example.com")
    await submit("example.org", priority=9)
    async with transaction() as session:
        await session.execute(
            text("UPDATE jobs SET run_at = now() - interval '1 hour' WHERE priority = 9")
        )
    found = samples((await client.get("/metrics")).text)
    assert found['siteatlas_jobs{status="pending"}'] == 2
    assert found['siteatlas_jobs{status="failed"}'] == 0
    assert 3600 <= found["siteatlas_oldest_pending_seconds"] < 3700


async def test_a_job_that_waits_for_its_time_is_not_old(client: httpx.AsyncClient):
    await submit("example.com")
    async with transaction() as session:
        await session.execute(text("UPDATE jobs SET run_at = now() + interval '1 hour'"))
    found = samples((await client.get("/metrics")).text)
    assert found["siteatlas_oldest_pending_seconds"] == 0


async def test_sites_past_their_time_are_counted_with_the_age_of_the_first(
    client: httpx.AsyncClient,
):
    for site in ("late.example", "later.example", "paused.example", "early.example"):
        await client.post("/api/v3/domains", json={"domain": site})
    async with transaction() as session:
        for site, due, paused in (
            ("late.example", "-1 hour", False),
            ("later.example", "-2 hours", False),
            ("paused.example", "-3 hours", True),
            ("early.example", "1 hour", False),
        ):
            await session.execute(
                text(
                    "UPDATE domains SET paused = :paused, next_scan_at = now() "
                    "+ CAST(:due AS text)::interval WHERE domain = :site"
                ),
                {"site": site, "due": due, "paused": paused},
            )
    found = samples((await client.get("/metrics")).text)
    assert found["siteatlas_domains_overdue"] == 2
    assert 7200 <= found["siteatlas_oldest_overdue_seconds"] < 7300


async def test_the_work_of_this_process_is_counted(client: httpx.AsyncClient):
    before = samples((await client.get("/metrics")).text)
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 30))}) as server:
        await scan_server(server)
    after = samples((await client.get("/metrics")).text)
    grown = {name: after[name] - before[name] for name in before}
    assert grown["siteatlas_claims_total"] == 1
    assert grown['siteatlas_jobs_ended_total{status="completed"}'] == 1
    assert grown['siteatlas_documents_total{outcome="complete"}'] == 1
    assert grown["siteatlas_urls_total"] == 30
    assert grown["siteatlas_fetched_bytes_total"] > 1000
    for kind, times in (("fetch", 1), ("write", 1), ("claim", 2)):
        name = f"siteatlas_{kind}_duration_seconds"
        assert (kind, grown[f"{name}_count"]) == (kind, times)
        assert grown[f'{name}_bucket{{le="+Inf"}}'] == times
        assert 0 < grown[f"{name}_sum"] < 60


async def test_memory_files_and_start_of_the_process_are_reported(client: httpx.AsyncClient):
    if sys.platform != "linux":
        pytest.skip("read from /proc")
    found = samples((await client.get("/metrics")).text)
    assert 20e6 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    assert found["process_cpu_seconds_total"] > 0
    assert 0 < time.time() - found["process_start_time_seconds"] < 3600


async def test_the_end_of_the_last_backup_is_a_time_and_0_before_the_first(
    client: httpx.AsyncClient,
):
    name, times = "siteatlas_last_backup_timestamp_seconds", []
    for action in ("db backup", "db backup ended"):
        async with transaction() as session:
            await record_command(session, action, "nightly.backup")
        times.append(samples((await client.get("/metrics")).text)[name])
    assert times[0] == 0
    assert abs(times[1] - time.time()) < 60


def test_the_free_space_of_the_embedded_server_is_there_without_a_database():
    page = queue_metrics(None, 5_000_000_000)
    assert samples(page)["siteatlas_disk_free_bytes"] == 5e9
    assert "disk_free" not in queue_metrics(None)


async def test_without_a_database_process_metrics_are_still_reported(
    cut_off_client: httpx.AsyncClient,
):
    response = await cut_off_client.get("/metrics")
    found = samples(response.text)
    assert (response.status_code, found["siteatlas_database_up"]) == (200, 0)
    assert 'siteatlas_jobs{status="pending"}' not in found
    assert found["siteatlas_claims_total"] == meters.claims


async def test_every_series_is_in_the_reference(client: httpx.AsyncClient, project: Path):
    page = (project / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    await client.get("/health")
    names = set(families((await client.get("/metrics")).text))
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []
    assert set(re.findall(r"^\| `((?:siteatlas|process)_\w+)` \|", page, re.MULTILINE)) == names


@pytest.fixture(autouse=True)
def bound(database: object) -> None:
    """The tests submit and scan in this process."""


async def test_the_feed_and_the_removals_that_it_holds_back_are_counted(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session, removals_held_since=datetime.now(UTC), missing_count=7)
        await add_domain(session, "other.example", missing_count=3)
        await add_published_scan(session, domain)
    found = samples((await client.get("/metrics")).text)
    assert {name: found[f"siteatlas_{name}"] for name in ("feed_head", "feed_retained_from")} == {
        "feed_head": 1,
        "feed_retained_from": 0,
    }
    assert (found["siteatlas_domains_held"], found["siteatlas_urls_held"]) == (1, 7)


async def test_unchanged_documents_are_counted_by_reason(client: httpx.AsyncClient):
    before = samples((await client.get("/metrics")).text)
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await scan_server(server)
        await scan_server(server)
    after = samples((await client.get("/metrics")).text)
    reasons = [name for name in after if name.startswith("siteatlas_documents_unchanged_total")]
    assert len(reasons) == 2
    assert sum(after[name] - before[name] for name in reasons) == 1


async def test_changes_of_published_scans_are_counted_by_kind(client: httpx.AsyncClient):
    name = 'siteatlas_changes_total{kind="added"}'
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        await scan_server(server)
        before = samples((await client.get("/metrics")).text)[name]
        server.pages["/sitemap.xml"] = urlset(pages("a", 5))
        await scan_server(server)
    assert samples((await client.get("/metrics")).text)[name] - before == 2
