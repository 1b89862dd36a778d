"""The list of sites: sorted, filtered, tagged, and changed many at a time."""

from __future__ import annotations

import csv

import httpx
import pytest

from siteatlas.access.keys import Scope
from siteatlas.storage.models import Domain, Job
from siteatlas.storage.session import Database
from siteatlas.web import context
from tests.fixtures.access import application, client_with, make_key
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
    page = await act(client, "scan", "a", "b")
    message = page.words("//main//*[@role='status']")
    assert "1 site queued for a scan, 1 already queued or running." in message
    assert page.find("//main//*[@role='status']/a/@href") == ["/jobs"]
    assert len(await rows_of(Job)) == 3


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


async def test_the_list_is_a_file_and_an_api_call_with_the_same_filters_and_order(
    client: httpx.AsyncClient,
):
    await add_sites(a="shop", b="shop news", c="shop", other="")
    page = await opened(client, "/domains?tag=shop&sort=-urls&q=example")
    (file,) = page.find("//main//a[.='CSV']/@href")
    answer = await client.get(file)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="sites.csv"'
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [(row["domain"], row["url_count"], row["tags"]) for row in rows] == [
        ("c.example", "2", "shop"),
        ("b.example", "1", "news shop"),
        ("a.example", "0", "shop"),
    ]
    (call,) = page.find("//main//a[.='API call']/@href")
    items = (await client.get(call)).json()["items"]
    assert [item["domain"] for item in items] == [row["domain"] for row in rows]


async def test_a_file_has_what_is_on_all_pages(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(context, "MAX_LIMIT", 2)
    await add_sites(a="", b="", c="", d="", e="")
    rows = (await client.get("/domains?format=csv")).text.splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == [f'"{name}.example"' for name in "abcde"]


@pytest.mark.parametrize("path", ["/findings", "/jobs"])
async def test_an_empty_list_is_a_file_with_a_head(client: httpx.AsyncClient, path: str):
    (head,) = (await client.get(f"{path}?format=csv")).text.splitlines()
    assert head.count(",") > 3


@pytest.mark.parametrize("tab", ["urls", "findings", "scans", "changes"])
async def test_each_list_of_a_site_is_a_file_and_an_api_call(client: httpx.AsyncClient, tab: str):
    await add_sites(a="")
    page = await opened(client, f"/domains/a.example?tab={tab}")
    (file,) = page.find("//main//a[.='CSV']/@href")
    (call,) = page.find("//main//a[.='API call']/@href")
    assert (await client.get(file)).headers["content-type"] == "text/csv; charset=utf-8"
    assert "/api/v3/domains/a.example/" in call
    assert (await client.get(call)).json()["items"] == []


async def test_a_file_with_a_filter_takes_one_place_among_the_exports(database: Database):
    app = application(database, exports_per_user=1)
    async with client_with(app, await make_key(Scope.READ)) as reader:
        answer = await reader.get("/domains?q=a&format=csv")
    assert answer.status_code == 200


async def test_the_enter_key_in_the_field_for_tags_adds_them(client: httpx.AsyncClient):
    await add_sites(a="")
    page = await opened(client, "/domains")
    buttons = page.find("//form[@method='post'][@action='/domains']//button/@value")
    assert buttons[0] == "tag"
    assert "scan" in buttons


async def test_selected_sites_are_removed_after_a_page_that_names_them(client: httpx.AsyncClient):
    names = [f"s{number:02d}" for number in range(12)]
    await add_sites(**dict.fromkeys([*names, "kept"], ""))
    data = {"domain": [f"{name}.example" for name in names], "action": "remove", "sort": "-urls"}
    asked = await client.post("/domains", data=data, headers={"Origin": BASE_URL})
    assert asked.status_code == 200
    page = WebPage(asked)
    assert "Remove 12 sites?" in page.words("//main")
    listed = [item.text_content() for item in page.find("//main//section//li")]
    assert listed == [*(f"{name}.example" for name in names[:10]), "and 2 more"]
    assert page.find("//a[.='Cancel']/@href") == ["/domains?sort=-urls"]
    assert not any(site.deleted_at for site in await rows_of(Domain))
    answer = await page.confirm(client)
    assert "sort=-urls" in answer.headers["location"]
    left = await opened(client, answer.headers["location"])
    assert "12 sites removed." in left.words("//main//*[@role='status']")
    assert left.find(NAMES) == ["kept.example"]


async def test_the_settings_of_a_site_ask_before_it_is_removed(client: httpx.AsyncClient):
    await add_sites(a="")
    settings = await opened(client, "/domains/a.example?tab=settings")
    button = "//form[@action='/domains']/button[@name='action'][@value='remove'][@data-confirm]"
    assert settings.find(f"{button}/../input[@name='domain']/@value") == ["a.example"]
    data = {"domain": "a.example", "action": "remove"}
    page = WebPage(await client.post("/domains", data=data, headers={"Origin": BASE_URL}))
    assert "Remove 1 site?" in page.words("//main")
    assert page.find("//a[.='Cancel']/@href") == ["/domains/a.example?tab=settings"]
    assert (await page.confirm(client)).status_code == 303
    assert (await opened(client, "/domains")).find(NAMES) == []
