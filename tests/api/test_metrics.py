"""The numbers for Prometheus: complete, readable, and there without a database too."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from siteatlas.meters import meters
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import pages, scan_server, urlset
from tests.fixtures.queue import submit
from tests.fixtures.site_server import SiteServer

SAMPLE = re.compile(r'(?:siteatlas|process)_[a-z_]+(?:\{[a-z]+="[^"\\]*"\})? [0-9.e+-]+')


def samples(page: str) -> dict[str, float]:
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_the_page_has_the_form_that_prometheus_reads(client: httpx.AsyncClient):
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert [line for line in lines if line not in comments and not SAMPLE.fullmatch(line)] == []
    assert all(re.match(r"# (HELP|TYPE) (siteatlas|process)_", line) for line in comments)
    assert response.text.endswith("\n")


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
    grown = {name: after[name] - before[name] for name in after if "_total" in name}
    assert grown["siteatlas_claims_total"] == 1
    assert grown['siteatlas_jobs_ended_total{status="completed"}'] == 1
    assert grown['siteatlas_documents_total{outcome="complete"}'] == 1
    assert grown["siteatlas_urls_total"] == 30
    assert grown["siteatlas_writes_total"] == 1
    assert grown["siteatlas_fetched_bytes_total"] > 1000
    assert grown["siteatlas_fetch_seconds_total"] > 0
    assert grown["siteatlas_write_seconds_total"] > 0


async def test_memory_files_and_start_of_the_process_are_told(client: httpx.AsyncClient):
    if sys.platform != "linux":
        pytest.skip("read from /proc")
    found = samples((await client.get("/metrics")).text)
    assert 20e6 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    assert found["process_cpu_seconds_total"] > 0
    assert 0 < time.time() - found["process_start_time_seconds"] < 3600


async def test_without_a_database_the_process_still_tells_of_itself(
    cut_off_client: httpx.AsyncClient,
):
    response = await cut_off_client.get("/metrics")
    found = samples(response.text)
    assert (response.status_code, found["siteatlas_database_up"]) == (200, 0)
    assert 'siteatlas_jobs{status="pending"}' not in found
    assert found["siteatlas_claims_total"] == meters.claims


async def test_every_series_is_in_the_reference(client: httpx.AsyncClient, project: Path):
    page = (project / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = {name.partition("{")[0] for name in samples((await client.get("/metrics")).text)}
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []
    assert set(re.findall(r"^\| `((?:siteatlas|process)_\w+)` \|", page, re.MULTILINE)) == names


@pytest.fixture(autouse=True)
def bound(database: object) -> None:
    """The tests submit and scan in this process."""
