"""Portions of a scan's rows: no number of documents is too many for one of them."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import func, select

from siteatlas.catalog.urls import url_hash
from siteatlas.catalog.write_batch import WriteBatch, flush_batch
from siteatlas.storage.models import LOCAL_USER_ID, Candidate, Sitemap, SitemapLink, SitemapScan
from siteatlas.storage.session import get_background_session
from siteatlas.text import storable, unaltered
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job, add_scan, add_sitemap

DOCUMENTS = 12_000


@pytest.mark.usefixtures("database")
async def test_an_index_with_thousands_of_children_is_written_in_one_batch() -> None:
    async with transaction() as session:
        domain = await add_domain(session)
        job = await add_job(session, domain)
        scan = await add_scan(session, domain, job)
        parent = await add_sitemap(session, domain)
    portion = WriteBatch()
    for number in range(DOCUMENTS):
        sitemap_id, url = uuid4(), f"https://example.com/{number}.xml"
        portion.new_sitemaps[sitemap_id] = {
            "domain_id": domain.id,
            "url": url,
            "url_hash": url_hash(url),
            "discovery_method": "sitemap_index",
            "first_job_id": job.job_id,
            "last_job_id": job.job_id,
            "created_by": LOCAL_USER_ID,
        }
        portion.links.add((parent.id, sitemap_id))
        portion.pending.append(sitemap_id)
        portion.closed[sitemap_id] = {"sitemap_id": sitemap_id, "state": "unread"}
        portion.candidates[url_hash(url)] = {
            "domain_id": domain.id,
            "url_hash": url_hash(url),
            "url": url,
            "method": "sitemap_index",
            "verdict": "rejected",
            "scan_id": scan.id,
        }
    async with get_background_session() as session, session.begin():
        await flush_batch(session, portion, scan_id=scan.id)
    async with get_background_session() as session, session.begin():
        for table in (Sitemap, SitemapLink, SitemapScan, Candidate):
            statement = select(func.count()).select_from(table)
            assert (await session.execute(statement)).scalar_one() >= DOCUMENTS


@pytest.mark.parametrize(
    ("text", "stored"), [("plain", "plain"), ("a\x00b", "a\ufffdb"), ("a\udcffb", "a?b")]
)
def test_text_from_outside_is_made_storable(text: str, stored: str) -> None:
    assert storable(text) == stored


@pytest.mark.parametrize("text", [None, "\xff", "a\x01", "x" * 2000, "\udcff"])
def test_a_validator_that_cannot_be_sent_back_as_it_was_is_none(text: str | None) -> None:
    assert unaltered(text, 1024) is None
