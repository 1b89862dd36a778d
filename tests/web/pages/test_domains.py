"""The list of sites: sorted, filtered, tagged, and changed many at a time."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.storage.models import Domain, Job
from tests.fixtures.application import BASE_URL
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_domain
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

NAMES = "//tbody/tr/td[2]/a/text()"


async def add_sites(**tags: str) -> None:
    """Sites by their first label, each with more URLs than the one before it."""
    async with transaction() as session:
        for number, (name, words) in enumerate(tags.items()):
            await add_domain(
                session, f"{name}.example", tags=sorted(words.split()), url_count=number
            )


async def opened(client: httpx.AsyncClient, path: str) -> WebPage:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return WebPage(response)


async def act(client: httpx.AsyncClient, action: str, *names: str, **fields: str) -> WebPage:
    """Apply an action to sites by their first label; the page that follows."""
    data = {"domain": [f"{name}.example" for name in names], "action": action, **fields}
    answer = await client.post("/domains", data=data, headers={"Origin": BASE_URL})
    assert answer.status_code == 303, answer.text
    return await opened(client, answer.headers["location"])


async def test_the_head_of_a_column_sorts_and_then_turns_the_order(client: httpx.AsyncClient):
    await add_sites(b="", a="", c="")
    page = await opened(client, "/domains")
    assert page.find(NAMES) == ["a.example", "b.example", "c.example"]
    assert page.find("//th[@aria-sort='ascending']/a/text()") == ["Site"]
    (href,) = page.find("//th/a[starts-with(., 'URLs')]/@href")
    page = await opened(client, href)
    assert page.find(NAMES) == ["c.example", "a.example", "b.example"]
    assert page.find("//th[@aria-sort]/@aria-sort") == ["descending"]
    (href,) = page.find("//th[@aria-sort]/a/@href")
    assert (await opened(client, href)).find(NAMES) == ["b.example", "a.example", "c.example"]


async def test_the_order_stays_with_filters_and_the_next_page(client: httpx.AsyncClient):
    async with transaction() as session:
        for number in range(101):
            await add_domain(session, f"{number}.example", url_count=number, tags=["many"])
    page = await opened(client, "/domains?sort=-urls&tag=many&q=example")
    assert page.find(NAMES)[:2] == ["100.example", "99.example"]
    (href,) = page.find("//a[@rel='next']/@href")
    assert (await opened(client, href)).find(NAMES) == ["0.example"]
    hidden = page.find("//form[@method='get']//input[@type='hidden' and @name='sort']/@value")
    assert hidden == ["-urls"]


async def test_sites_are_filtered_by_a_tag_that_the_page_counts(client: httpx.AsyncClient):
    await add_sites(a="shop", b="news shop", c="")
    page = await opened(client, "/domains")
    chips = "//nav[@aria-label='Tags']/a"
    assert [" ".join(chip.text_content().split()) for chip in page.find(chips)] == [
        "shop 2",
        "news 1",
    ]
    page = await opened(client, page.find(f"{chips}[starts-with(., 'news')]/@href")[0])
    assert page.find(NAMES) == ["b.example"]
    assert page.find("//a[@class='tag']/text()") == ["news", "shop"]
    (off,) = page.find(f"{chips}[@aria-current]/@href")
    assert len((await opened(client, off)).find(NAMES)) == 3
    unknown = await opened(client, "/domains?tag=Unknown")
    assert "No site matches these filters." in unknown.words()
    assert unknown.find(f"{chips}[@aria-current]/text()") == ["unknown"]


async def test_tags_are_added_to_and_taken_from_the_selected_sites(client: httpx.AsyncClient):
    await add_sites(a="shop", b="", c="")
    page = await act(client, "tag", "a", "b", tags="News, eu", state="", sort="-urls")
    assert "2 sites tagged." in page.words("//main//*[@role='status']")
    assert page.find("//th[@aria-sort]/a/text()") == ["URLs"]
    await act(client, "untag", "a", "c", tags="eu")
    assert {site.domain: site.tags for site in await rows_of(Domain)} == {
        "a.example": ["news", "shop"],
        "b.example": ["eu", "news"],
        "c.example": [],
    }


async def test_a_site_that_would_have_too_many_tags_is_left(client: httpx.AsyncClient):
    await add_sites(full=" ".join(f"t{number}" for number in range(20)), a="")
    page = await act(client, "tag", "full", "a", tags="more")
    assert "1 site tagged, 1 site left unchanged." in page.words("//main//*[@role='status']")


async def test_the_selected_sites_are_scanned_now(client: httpx.AsyncClient):
    await add_sites(a="", b="", c="")
    page = await act(client, "scan", "a", "c", "unknown")
    message = page.words("//main//*[@role='status']")
    assert "2 sites queued for a scan, 1 site left unchanged." in message
    queued = {job.result_data["domain"] for job in await rows_of(Job) if job.result_data}
    assert queued == {"a.example", "c.example"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action": "pause"}, "Select at least one site first."),
        ({"action": "", "domain": "a.example"}, "Choose what to do with the selected sites."),
        ({"action": "tag", "domain": "a.example"}, "Enter the tags first."),
        ({"action": "tag", "domain": "a.example", "tags": "&"}, "A tag has 1 to 50 characters"),
    ],
)
async def test_an_action_that_lacks_something_says_what(
    client: httpx.AsyncClient, fields: dict[str, str], reason: str
):
    answer = await client.post("/domains", data=fields, headers={"Origin": BASE_URL})
    assert answer.status_code == 422
    assert reason in WebPage(answer).words()


async def test_the_settings_of_a_site_have_its_tags(client: httpx.AsyncClient):
    await add_sites(a="news shop")
    settings = "/domains/a.example/settings"
    page = await opened(client, "/domains/a.example?tab=settings")
    assert page.find("//input[@name='tags']/@value") == ["news shop"]
    await client.post(settings, data={"tags": "Shop eu"}, headers={"Origin": BASE_URL})
    (site,) = await rows_of(Domain)
    assert site.tags == ["eu", "shop"]
