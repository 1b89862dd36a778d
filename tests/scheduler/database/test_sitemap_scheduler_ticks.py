"""What one tick does: due sites one by one, a bounded claim, and true numbers in the log."""

from __future__ import annotations

import io
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, text, update

from siteatlas.catalog.domains import register_domain
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.options import ChildFilter
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler, enqueue_due_domains
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job, Worker
from siteatlas.storage.session import get_background_session
from tests.fixtures.log_lines import log_lines, logged
from tests.fixtures.pipeline import pages, rows_of, settings_for, submit_server, urlset
from tests.fixtures.queue import change, job_of, submit, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

__all__ = ["log_lines"]
pytestmark = pytest.mark.usefixtures("database")
DAY = timedelta(days=1)


async def watch(*sites: str) -> None:
    """Watched sites that are due."""
    async with get_background_session() as session, session.begin():
        for site in sites:
            await register_domain(session, parse_site(site), created_by=LOCAL_USER_ID, watch=True)
        await session.execute(update(Domain).values(next_scan_at=func.now() - timedelta(minutes=1)))


async def execute(statement: str) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(text(statement))


async def all_completed() -> bool:
    return {job.status for job in await rows_of(Job)} == {"completed"}


def scheduler_of(settings: Settings) -> SitemapScheduler:
    return SitemapScheduler(settings, EgressPolicy.from_text(settings.egress_allow))


@pytest.mark.parametrize(
    "options",
    [
        {"document": "https://example.com/a.xml"},
        {"child_filter": ChildFilter(include=("/blog/",))},
        {"max_pages": 1},
        {},
    ],
    ids=["document", "filter", "limit", "site"],
)
async def test_a_due_site_that_waits_for_a_job_of_a_user_is_next_due_after_its_interval(
    options: dict[str, Any],
) -> None:
    await submit("example.com", **options)
    await take_one()
    await watch("example.com")
    assert await enqueue_due_domains(Settings()) == 0
    (site,) = await rows_of(Domain)
    assert site.next_scan_at is not None
    assert timedelta(hours=23) < site.next_scan_at - datetime.now(UTC) <= DAY


async def test_the_last_tick_of_a_stopped_scheduler_stays_known() -> None:
    scheduler = SitemapScheduler(Settings(), EgressPolicy())
    before = datetime.now(UTC)
    await scheduler.start()
    await scheduler.tick()
    await scheduler.shutdown()
    (worker,) = await rows_of(Worker)
    assert worker.last_tick_at is not None
    assert worker.last_tick_at >= before
    assert (worker.slots, worker.next_tick_at) == (0, None)


@pytest.mark.criterion("failures-isolated")
async def test_a_due_site_with_an_unusable_address_does_not_stop_the_others() -> None:
    await watch("broken.example.com", "good.example.com", "fine.example.com")
    async with get_background_session() as session, session.begin():
        broken = update(Domain).where(Domain.domain == "broken.example.com")
        await session.execute(broken.values(base_url="http://", next_scan_at=func.now() - DAY))
    assert await enqueue_due_domains(Settings()) == 2
    assert {job.dedup_key for job in await rows_of(Job)} == {"good.example.com", "fine.example.com"}
    sites = {domain.domain: domain for domain in await rows_of(Domain)}
    failed = sites["broken.example.com"]
    assert (failed.last_scan_status, failed.failures_in_a_row) == ("failed", 1)
    assert failed.last_error_code == "address_invalid"
    assert await enqueue_due_domains(Settings()) == 0


@pytest.mark.criterion("errors-logged")
async def test_a_due_site_that_cannot_be_queued_is_a_warning_with_its_reason(
    log_lines: io.StringIO,
) -> None:
    await watch("broken.example.com", "good.example.com")
    await execute("UPDATE domains SET base_url = 'http://' WHERE domain = 'broken.example.com'")
    await enqueue_due_domains(Settings())
    (line,) = logged(log_lines, "due_domain_failed")
    assert (line["level"], line["domain"]) == ("warning", "broken.example.com")
    assert (line["base_url"], line["error_code"]) == ("http://", "address_invalid")


async def test_a_due_site_that_the_database_refuses_does_not_stop_the_others() -> None:
    await watch("broken.example.com", "good.example.com")
    refusal = "ALTER TABLE jobs ADD CHECK (dedup_key IS DISTINCT FROM 'broken.example.com')"
    await execute(refusal)
    assert await enqueue_due_domains(Settings()) == 1
    sites = {domain.domain: domain for domain in await rows_of(Domain)}
    assert sites["broken.example.com"].last_error_code == "internal_error"
    assert [job.dedup_key for job in await rows_of(Job)] == ["good.example.com"]


@pytest.mark.criterion("failures-isolated")
async def test_a_tick_survives_a_fault_among_the_due_sites_and_still_claims(
    log_lines: io.StringIO,
) -> None:
    await watch("example.com")
    await execute("ALTER TABLE domains ADD CHECK (next_scan_at < '2000-01-01') NOT VALID")
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) as server:
        scheduler = scheduler_of(settings_for(server))
        await scheduler.start()
        submitted = await submit_server(server)
        await scheduler.tick()
        assert (await job_of(submitted.id)).status != "pending"
        # The clock ticks at its start as well, and only one of two ticks gets the due site.
        await wait_until(lambda: len(logged(log_lines, "tick_ended")) == 2)
        await scheduler.shutdown()
    assert {line["step"] for line in logged(log_lines, "tick_failed")} == {"due_domains"}
    assert None in [line["due_enqueued"] for line in logged(log_lines, "tick_ended")]


@pytest.mark.criterion("load-bounded")
@pytest.mark.parametrize("chosen", [2, None])
async def test_a_batch_size_that_was_chosen_limits_every_claim(chosen: int | None) -> None:
    limit = {} if chosen is None else {"scheduler_batch_size": chosen}
    servers = [SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) for _ in range(5)]
    for server in servers:
        await server.start()
        await submit_server(server)
    scheduler = scheduler_of(settings_for(*servers, **limit))
    await scheduler.start()
    await wait_until(all_completed)
    await scheduler.shutdown()
    for server in servers:
        await server.stop()
    # The moment of a claim is that of its transaction.
    at_once = Counter(job.started_at for job in await rows_of(Job))
    assert max(at_once.values()) == (chosen or 5)


@pytest.mark.criterion("log-sentences")
async def test_a_tick_reports_what_was_claimed_since_the_last_one_and_what_waits(
    log_lines: io.StringIO,
) -> None:
    later = await submit("later.example.com")
    await change(later.id, run_at=func.now() + timedelta(hours=1))
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) as server:
        scheduler = scheduler_of(settings_for(server))
        await scheduler.start()
        await wait_until(lambda: bool(logged(log_lines, "tick_ended")))
        submitted = await submit_server(server)
        scheduler.wake()
        await wait_until(lambda: bool(logged(log_lines, "job_ended")))
        assert (await job_of(submitted.id)).status == "completed"
        await scheduler.tick()
        await scheduler.tick()
        await scheduler.shutdown()
    ticks = [(line["found"], line["waiting"]) for line in logged(log_lines, "tick_ended")]
    assert ticks == [(0, 1), (1, 1), (0, 1)]
