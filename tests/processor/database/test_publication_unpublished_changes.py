"""Changes survive scans that are killed, cancelled or fail; failures are reported too."""

from __future__ import annotations

import pytest
from sqlalchemy import func, null, select, update

from siteatlas.catalog import classification as change_classification
from siteatlas.catalog import removals as removed_urls
from siteatlas.catalog.classification import Lookup, SiteSize
from siteatlas.errors import JobCancelled, LeaseLost
from siteatlas.processor import settlement
from siteatlas.processor.publication import record_cancellation, record_failure
from siteatlas.processor.steps import FencedSteps
from siteatlas.queue.operator_actions import release_removals, remove_domain_and_jobs
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Domain,
    FeedEvent,
    FeedHead,
    Job,
    Scan,
    Sitemap,
    UrlChange,
)
from tests.fixtures.database import transaction
from tests.fixtures.ended_scans import HOST, EndedScan, EndedSite, site_with_baseline
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import pages, rows_of, scan_server, settings_for, urlset, work
from tests.fixtures.queue import let_lease_expire, take_one
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

A = [f"/a{number:02d}" for number in range(30)]
B = [f"/b{number:02d}" for number in range(30)]


async def cancel(scan: EndedScan) -> None:
    """End a scan without publishing it."""
    async with transaction() as session:
        cancelled = update(Job).where(Job.id == scan.claim.id)
        await session.execute(cancelled.values(cancel_requested_at=func.now()))
    with pytest.raises(JobCancelled):
        await scan.publish()
    await record_cancellation(scan.claim)


async def take_again(site: EndedSite, scan: EndedScan) -> EndedScan:
    """The scan of a job whose worker died, taken by another one."""
    await let_lease_expire(scan.claim.id)
    async with transaction() as session:
        waiting = update(Job).where(Job.id == scan.claim.id)
        await session.execute(waiting.values(status="pending", lease_until=None))
    return EndedScan(await take_one("worker-b"), scan.id, scan.domain_id)


async def test_changes_of_a_cancelled_scan_are_reported_by_the_next_one() -> None:
    site = await site_with_baseline(a=A, b=B)
    lost = await site.scan()
    await site.put(lost, "/a.xml", "/new", "/x")
    await site.miss(lost, "/b.xml", "/b00")
    await cancel(lost)
    assert await site.event_lines(lost) == []
    scan = await site.scan()
    await site.put(scan, "/b.xml", "/more")
    await site.miss(scan, "/a.xml", "/x")
    await scan.publish()
    assert await site.event_lines(scan) == [
        "added /more /b.xml",
        "added /new /a.xml",
        "removed /b00 /b.xml (complete)",
        "removed /x /a.xml (complete)",
    ]
    (row,) = await rows_of(Domain)
    assert (row.url_count, row.distinct_url_count) == (61, 61)
    assert {change.scan_id for change in await rows_of(UrlChange)} == {scan.id}


async def test_two_changes_of_an_entry_keep_the_first_state_and_the_last() -> None:
    site = await site_with_baseline(a=A)
    scans: list[EndedScan] = []
    for number in (1, 2, 3):
        scans.append(await site.scan())
        change = {"before": {"priority": number}, "after": {"priority": number + 1}}
        entry = {"sitemap_id": site.ids["/a.xml"], "url_hash": 1, "url": "https://example.com/1"}
        async with transaction() as session:
            session.add(UrlChange(scan_id=scans[-1].id, kind="changed", **entry, **change))
        await (scans[-1].publish() if number == 3 else cancel(scans[-1]))
    (published,) = await rows_of(UrlChange)
    assert (published.scan_id, published.before, published.after) == (
        scans[-1].id,
        {"priority": 1},
        {"priority": 4},
    )


@pytest.mark.parametrize("lookup", list(Lookup))
async def test_many_changes_are_settled_in_batches(
    lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await site_with_baseline(a=A, b=B, c=[])
    monkeypatch.setattr(removed_urls, "URLS_PER_BATCH", 4)
    monkeypatch.setattr(settlement, "GROUPS_PER_BATCH", 1)
    monkeypatch.setattr(SiteSize, "lookup", lambda *_: lookup)
    monkeypatch.setattr(Lookup, "changes_per_batch", 4)
    small = {lookup: change_classification._arrivals_statement(lookup)}
    monkeypatch.setattr(change_classification, "_arrival_statements", small)
    small = {lookup: change_classification._departures_statement(lookup)}
    monkeypatch.setattr(change_classification, "_departure_statements", small)
    small = removed_urls._removal_statement(whole_documents=False)
    monkeypatch.setattr(removed_urls, "_remove_missing", small)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", *A[:10])
    await site.miss(scan, "/b.xml", *B[:10])
    await site.put(scan, "/c.xml", *A[:5], *B[:5], *(f"/new{number}" for number in range(5)))
    await scan.publish()
    kinds = [line.split()[0] for line in await site.event_lines(scan)]
    assert (kinds.count("moved"), kinds.count("removed"), kinds.count("added")) == (10, 10, 5)
    assert len(kinds) == 25
    assert len(await site.listed()) == 55


@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_a_scan_that_dies_at_any_step_is_continued(
    dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00", "/a01")
    await site.put(scan, "/b.xml", "/a00", "/new")
    steps = 0
    run = FencedSteps.run

    async def run_until_crash(self: object, step: object) -> object:
        nonlocal steps
        steps += 1
        if steps == dies_at:
            raise LeaseLost
        return await run(self, step)  # type: ignore[arg-type]

    monkeypatch.setattr(FencedSteps, "run", run_until_crash)
    try:
        await scan.publish()
    except LeaseLost:
        monkeypatch.setattr(FencedSteps, "run", run)
        scan = await take_again(site, scan)
        await scan.publish()
    assert await site.event_lines(scan) == [
        "added /new /b.xml",
        "moved /a00 /b.xml from /a.xml",
        "removed /a01 /a.xml (complete)",
    ]
    (row,) = await rows_of(Domain)
    assert (row.url_count, row.distinct_url_count, row.missing_count) == (60, 60, 0)


async def test_a_stored_decision_is_continued_though_the_facts_have_changed() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan()
    await site.miss(scan, "/a.xml", "/a00")
    decision = {
        "removals": [
            {
                "sitemap_id": str(site.ids["/a.xml"]),
                "missing_scan_id": scan.id,
                "evidence": "confirmed",
                "not_before": None,
                "not_after": None,
            }
        ],
        "held": 0,
        "documents": {},
    }
    async with transaction() as session:
        await session.execute(update(Scan).values(removal_decision=decision))
    await scan.publish()
    assert await site.event_lines(scan) == ["removed /a00 /a.xml (confirmed)"]
    async with transaction() as session:
        published = select(Scan.id).where(Scan.removal_decision.is_(null()), Scan.id == scan.id)
        assert await session.scalar(published) == scan.id


@pytest.mark.parametrize("watched", [True, False])
async def test_a_failed_scan_of_a_watched_site_is_reported_under_its_own_number(
    watched: bool,
) -> None:
    site = await site_with_baseline(a=A)
    async with transaction() as session:
        await session.execute(update(Domain).values(watched=watched))
    scan = await site.scan()
    await site.put(scan, "/a.xml", "/new")
    await record_failure(scan.claim, code="robots_unreachable", message="", transient=False)
    failed = [row for row in await rows_of(FeedEvent) if row.kind == "scan_failed"]
    (head,) = await rows_of(FeedHead)
    if not watched:
        assert (failed, head.seq) == ([], 1)
        return
    (event,) = failed
    assert (event.seq, event.scan_id, event.domain) == (2, scan.id, HOST)
    assert (event.data, head.seq) == ({"error_code": "robots_unreachable"}, 2)
    later = await site.scan()
    await later.publish()
    assert await site.event_lines(later) == ["added /new /a.xml"]


async def test_a_deleted_site_leaves_an_event_with_its_name() -> None:
    site = await site_with_baseline(a=A)
    async with transaction() as session:
        await remove_domain_and_jobs(session, HOST)
    (event,) = [row for row in await rows_of(FeedEvent) if row.kind == "domain_forgotten"]
    assert (event.seq, event.domain, event.domain_id) == (2, HOST, site.domain_id)


async def test_a_user_ends_a_hold_with_a_scan() -> None:
    site = await site_with_baseline(a=A, b=B)
    scan = await site.scan(b="unread")
    await site.miss(scan, "/a.xml", "/a00")
    await scan.publish()
    async with transaction() as session:
        _, job = await release_removals(session, HOST, created_by=LOCAL_USER_ID)
    later = await site.scan(b="unread")
    assert later.claim.id == job.id
    await later.publish()
    assert await site.event_lines(later) == ["removed /a00 /a.xml (released)"]


async def test_a_site_whose_documents_are_all_not_found_is_published_and_then_removed() -> None:
    async with SiteServer({"/robots.txt": "Sitemap: {base}/a.xml"}) as server:
        unknown = await scan_server(server)
        assert (unknown.status, unknown.error_code) == ("failed", "no_sitemap")
        server.pages["/a.xml"] = urlset(pages("a", 3))
        await scan_server(server)
        del server.pages["/a.xml"]
        lost = await scan_server(server)
        assert lost.status == "completed"
        assert lost.result_data is not None
        assert lost.result_data["reasons"][0] == "no_sitemap"
        await let_minutes_pass(61)
        gone = await scan_server(server)
        assert gone.status == "completed"
        (row,) = await rows_of(Domain)
        assert (row.url_count, row.sitemap_count, row.last_scan_status) == (0, 0, "partial")
        assert {document.gone_at is not None for document in await rows_of(Sitemap)} == {True}
        kinds = [change.kind for change in await rows_of(UrlChange)]
        assert kinds == ["removed"] * 3
        after = await scan_server(server)
        assert (after.status, after.error_code) == ("failed", "no_sitemap")
    await work(settings_for(server))


async def test_a_document_with_a_fault_lets_the_scan_fail_as_before() -> None:
    site = {"/robots.txt": "Sitemap: {base}/a.xml", "/a.xml": urlset(pages("a", 3))}
    async with SiteServer(site) as server:
        await scan_server(server)
        server.pages["/a.xml"] = "<html><body>Sorry</body></html>"
        job = await scan_server(server, max_attempts=1)
    assert (job.status, job.error_code) == ("failed", "html_instead")
    assert [change.kind for change in await rows_of(UrlChange)] == []
