"""The list of changes in the dashboard: a filter that matches little still leads to the end."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.catalog import publications as newest_numbers
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

LIST = "//section[@id='publications']"


@pytest.mark.parametrize("base", ["/changes?", "/domains/example.com?tab=changes&"])
async def test_a_page_without_hits_leads_to_older_publications(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, base: str
):
    monkeypatch.setattr(newest_numbers, "MAX_SCANS", 2)
    async with transaction() as session:
        domain = await add_domain(session)
        for counts in ({"removed": 1}, {}, {}, {}):
            await add_published_scan(session, domain, change_counts=counts)
    page = WebPage(await client.get(f"{base}kinds=removed"))
    assert page.find(f"{LIST}//li") == []
    assert "The next page searches older scans" in page.words(LIST)
    (following,) = page.find(f"{LIST}//a[@rel='next']/@href")
    older = WebPage(await client.get(following))
    assert older.find(f"{LIST}//li/@id") == ["seq-1"]
    assert older.find(f"{LIST}//a[@rel='next']") == []
