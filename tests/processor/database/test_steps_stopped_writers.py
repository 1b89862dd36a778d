"""A job that is stopped while the database is slow stores its portions in order, or not at all."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select, text

from siteatlas.catalog.scans import open_scan
from siteatlas.catalog.sitemaps import load_sitemaps
from siteatlas.errors import DatabaseError
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.entries import EntryMemoryBudget
from siteatlas.processor.recorder import Recorder
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.fence import Claim
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    EntryColumns,
    ScanEvent,
    SitemapType,
)
from siteatlas.storage.models import Sitemap, SitemapScan, SitemapUrl
from siteatlas.storage.session import get_background_session
from tests.fixtures.database import transaction
from tests.fixtures.queue import LEASE, submit, take_one

pytestmark = pytest.mark.usefixtures("database")

URL = "https://example.com/sitemap.xml"
FULL_PORTION = 5_000
OPENED = DocumentOpened(
    url=URL,
    requested_url=URL,
    method=DiscoveryMethod.ROBOTS_TXT,
    type=SitemapType.STANDARD,
    parent_url=None,
    depth=0,
    http_status=200,
)
CLOSED = DocumentClosed(
    url=URL,
    requested_url=URL,
    outcome=DocumentOutcome.COMPLETE,
    method=DiscoveryMethod.ROBOTS_TXT,
    type=SitemapType.STANDARD,
    http_status=200,
    entry_count=FULL_PORTION + 1_000,
)


def entries(first: int, end: int) -> EntriesRead:
    nothing: list[None] = [None] * (end - first)
    urls = [f"https://example.com/{number}" for number in range(first, end)]
    return EntriesRead(URL, EntryColumns(urls, [*nothing], [*nothing], [*nothing], [*nothing]))


async def recorder_of(claim: Claim) -> Recorder:
    assert claim.domain_id is not None
    async with get_background_session() as session, session.begin():
        scan_id, _ = await open_scan(
            session, job_id=claim.id, domain_id=claim.domain_id, max_pages=None
        )
        known, _ = await load_sitemaps(session, claim.domain_id, scan_id, resumed=False)
    scan = OpenedScan(scan_id, claim.domain_id, "example.com", resumed=False, known=known)
    return Recorder(claim, scan, JobActivity(), lease_seconds=LEASE, budget=EntryMemoryBudget())


async def stopped_in_the_middle(events: list[ScanEvent]) -> None:
    """Stop a reader that waits for a slow writer, then save what it holds, as a job does."""
    await submit("example.com")
    recorder = await recorder_of(await take_one())
    await recorder.record(OPENED)
    async with transaction() as holder:
        await holder.execute(text("LOCK TABLE sitemap_urls IN SHARE MODE"))
        reader = asyncio.create_task(record_all(recorder, events))
        await asyncio.sleep(0.3)
        reader.cancel()
        await asyncio.wait([reader])
    await recorder.flush()
    await recorder.abandon()


async def record_all(recorder: Recorder, events: list[ScanEvent]) -> None:
    for event in events:
        await recorder.record(event)
    await recorder.flush()


async def stored() -> tuple[int, int, str]:
    orphans = (
        select(func.count())
        .select_from(SitemapUrl)
        .outerjoin(Sitemap, Sitemap.id == SitemapUrl.sitemap_id)
        .where(Sitemap.id.is_(None))
    )
    async with transaction() as session:
        rows = await session.scalar(select(func.count()).select_from(SitemapUrl))
        lost = await session.scalar(orphans)
        state = await session.scalar(select(SitemapScan.state))
    return int(rows or 0), int(lost or 0), str(state)


async def test_a_job_stopped_in_the_middle_of_a_document_keeps_what_it_read() -> None:
    await stopped_in_the_middle([entries(0, FULL_PORTION), entries(FULL_PORTION, 6_000)])
    assert await stored() == (6_000, 0, "pending")


async def test_a_document_is_closed_only_with_all_its_listings() -> None:
    await stopped_in_the_middle([entries(0, FULL_PORTION), entries(FULL_PORTION, 6_000), CLOSED])
    assert await stored() == (6_000, 0, "complete")


async def test_after_a_batch_that_failed_no_later_one_is_stored() -> None:
    await submit("example.com")
    recorder = await recorder_of(await take_one())
    await recorder.record(OPENED)
    async with transaction() as session:
        await session.execute(text("ALTER TABLE sitemap_urls RENAME TO elsewhere"))
    await recorder.record(entries(0, FULL_PORTION))
    await recorder.record(CLOSED)
    with pytest.raises(DatabaseError):
        await recorder.flush()
    async with transaction() as session:
        await session.execute(text("ALTER TABLE elsewhere RENAME TO sitemap_urls"))
    with pytest.raises(DatabaseError):
        await recorder.flush()
    await recorder.abandon()
    async with transaction() as session:
        assert await session.scalar(select(func.count()).select_from(SitemapScan)) == 0
