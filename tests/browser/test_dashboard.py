"""The dashboard as people use it, in Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Dialog, Page, expect

from siteatlas.web.pages.domain import TABS
from tests.browser.conftest import WatchedContext
from tests.fixtures.commands import Machine, Service
from tests.fixtures.embedded import data_directory
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.slow

TIMEOUT_MS = 30_000
PATHS = [
    "/",
    "/domains",
    "/changes",
    "/findings",
    "/jobs",
    "/webhooks",
    "/system",
    "/keys",
    "/audit",
    "/sessions",
    "/scan",
]
# Elements that reach beyond the window, unless a parent lets them scroll.
WIDE_ELEMENTS = """width => [...document.querySelectorAll("body *")]
  .filter(one => one.getBoundingClientRect().right > width && !one.closest(".scroll"))
  .map(one => one.outerHTML.slice(0, 100)).slice(0, 5)"""


def submit(page: Page, address: str) -> None:
    """Scan a site through the dialog of the page."""
    page.get_by_role("link", name="Scan a site").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Sites, one per line").fill(address)
    dialog.get_by_role("button", name="Scan now").click()


@pytest.fixture(scope="module")
def scanned(chromium: Browser, service: Service, site: SiteServer) -> str:
    """The name of a site that was scanned before the test."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(service.address + "/")
    submit(page, site.base)
    expect(page.locator("h1 + .badge")).to_contain_text("completed", timeout=TIMEOUT_MS)
    context.close()
    return site.host_port


@pytest.fixture(scope="module")
def waiting() -> Iterator[Service]:
    """A service without a worker: its jobs wait."""
    with data_directory() as folder, Machine(folder).service("--no-scheduler") as running:
        yield running


def test_a_submitted_site_is_watched_live_to_its_end(
    window: WatchedContext, service: Service, site: SiteServer
):
    page = window.open(service.address + "/")
    submit(page, site.base)
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    expect(page.locator("h1 + .badge")).to_contain_text("completed", timeout=TIMEOUT_MS)
    expect(page.locator("#job")).to_contain_text("65")
    page.get_by_role("link", name="Open the site").click()
    expect(page.locator("h1")).to_have_text(site.host_port)


def test_the_tree_opens_and_leads_to_a_sitemap(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains/{scanned}?tab=tree")
    page.get_by_role("link", name="/b.xml").click()
    expect(page.locator("h1")).to_contain_text("/b.xml")
    expect(
        page.get_by_role("table", name="URLs of this sitemap").locator("tbody tr")
    ).to_have_count(5)


def test_a_filter_is_in_the_address_and_the_back_button_undoes_it(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains/{scanned}?tab=urls")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_label("URL contains").fill("page-59")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "contains=page-59" in page.url
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_the_values_of_a_chart_are_read_with_the_keyboard_and_in_its_table(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains/{scanned}")
    page.get_by_role("button", name="Scan now").click()
    expect(page.locator("h1 + .badge")).to_contain_text("completed", timeout=TIMEOUT_MS)
    page.goto(f"{service.address}/domains/{scanned}")
    marks = page.get_by_role("group", name="URLs over time").locator(".mark")
    expect(marks.last.locator(".tip")).to_be_hidden()
    marks.last.focus()
    expect(marks.last.locator(".tip")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(marks.nth(-2)).to_be_focused()
    expect(marks.nth(-2).locator(".tip")).to_contain_text("UTC: 65")
    page.get_by_text("Show as a table").first.click()
    table = page.get_by_role("table", name="URLs over time")
    expect(table.locator("tbody tr")).to_have_count(marks.count())


@pytest.mark.full
def test_a_new_job_appears_in_the_list_without_reloading(
    window: WatchedContext, service: Service, site: SiteServer, scanned: str
):
    listed = window.open(f"{service.address}/jobs?domain={scanned}")
    counted = window.open(f"{service.address}/jobs")
    for page in (listed, counted):
        expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    before = listed.locator("#job-rows tbody tr").count()
    completed = counted.locator("nav[aria-label=Status] a", has_text="Completed").locator(".count")
    ended = int(completed.inner_text())
    submit(window.open(service.address + "/"), site.base)
    expect(listed.locator("#job-rows tbody tr")).to_have_count(before + 1, timeout=TIMEOUT_MS)
    expect(completed).to_have_text(str(ended + 1), timeout=TIMEOUT_MS)


@pytest.mark.full
def test_live_updates_can_be_paused(window: WatchedContext, service: Service):
    page = window.open(service.address + "/")
    live = page.locator("[data-live]")
    expect(live).to_have_attribute("data-state", "live")
    live.click()
    expect(live).to_have_attribute("data-state", "paused")
    page.keyboard.press("r")
    expect(live).to_have_attribute("data-state", "live")


def test_the_keyboard_alone_leads_to_everything(window: WatchedContext, service: Service):
    page = window.open(service.address + "/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("s")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()


def test_a_site_is_scanned_with_the_keyboard_alone(
    window: WatchedContext, service: Service, site: SiteServer
):
    page = window.open(service.address + "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    page.keyboard.press("s")
    page.keyboard.type(site.base)
    button = page.get_by_role("dialog").get_by_role("button", name="Scan now")
    for _ in range(6):
        if button.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))


def test_the_rows_of_a_list_are_reached_with_j_and_k(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains/{scanned}?tab=urls")
    links = page.locator("tbody tr td:first-child a")
    page.keyboard.press("j")
    expect(links.first).to_be_focused()
    page.keyboard.press("j")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(links.first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/url?**")


def test_the_keys_are_listed_by_a_key_and_by_a_button_but_not_while_typing(
    window: WatchedContext, service: Service
):
    page = window.open(service.address + "/jobs")
    listed = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.keyboard.press("?")
    expect(listed).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    expect(listed).to_be_hidden()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    places = listed.locator("dt", has_text="g").locator("+ dd").all_inner_texts()
    assert places == page.locator(".rail li a").all_inner_texts()
    listed.get_by_role("button", name="Close").click()
    field = page.get_by_role("searchbox", name="Site", exact=True)
    field.fill("a")
    page.keyboard.type("?gk/x")
    expect(listed).to_be_hidden()
    expect(field).to_have_value("a?gk/x")
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/audit")


def test_a_long_table_has_low_rows_and_keeps_its_head_in_sight(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains/{scanned}?tab=urls")
    row = page.locator("tbody tr").nth(40)
    row.scroll_into_view_if_needed()
    page.mouse.wheel(0, 600)
    box = row.bounding_box()
    assert box
    assert box["height"] <= 33
    head, top = (page.locator(one).bounding_box() for one in ("thead th >> nth=0", "header.top"))
    assert head
    assert top
    assert head["y"] == pytest.approx(top["height"], abs=1)


def test_a_selection_lasts_through_live_updates_and_is_acted_on(
    window: WatchedContext, service: Service, scanned: str
):
    page = window.open(f"{service.address}/domains")
    box = page.get_by_role("checkbox", name=f"Select {scanned}")
    box.check()
    with page.expect_response(lambda response: response.url.endswith("/domains")):
        page.evaluate("htmx.trigger('#live', 'changed')")
    page.wait_for_timeout(200)
    expect(box).to_be_checked()
    page.get_by_placeholder("tags").fill("shop")
    page.get_by_placeholder("tags").press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("1 site tagged.")
    page.get_by_role("navigation", name="Tags").get_by_role("link", name="shop").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="URLs", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("URLs ▾")


def test_a_question_says_how_many_sites_are_selected_and_is_asked_once(
    window: WatchedContext, waiting: Service
):
    page = window.open(waiting.address + "/scan")
    page.locator("main").get_by_label("Sites, one per line").fill("a.example\nb.example")
    page.locator("main").get_by_role("button", name="Scan now").click()
    page.goto(waiting.address + "/domains")
    questions: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.get_by_role("checkbox", name="Select a.example").check()
    page.get_by_role("checkbox", name="Select b.example").check()
    page.get_by_role("button", name="Remove", exact=True).click()
    assert questions == ["Remove the selected sites (2) and everything stored about them?"]
    page.remove_listener("dialog", dismiss)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("2 sites removed.")


@pytest.mark.parametrize("javascript", [True, False])
def test_a_phone_has_a_short_head_and_a_menu(
    chromium: Browser, service: Service, scanned: str, *, javascript: bool
):
    context = chromium.new_context(
        viewport={"width": 320, "height": 640}, java_script_enabled=javascript
    )
    page = context.new_page()
    page.goto(f"{service.address}/domains/{scanned}?tab=scans")
    head = page.locator("header.top").bounding_box()
    assert head
    assert head["height"] <= 64
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_be_hidden()
    row = page.locator(".cards tbody tr").first
    labels = row.locator("td[data-label]")
    assert labels.nth(0).get_attribute("data-label") == "State"
    page.get_by_role("button", name="Menu").click()
    expect(menu).to_be_visible()
    menu.get_by_role("link", name="Jobs").click()
    page.wait_for_url("**/jobs")
    for path in ("/domains", "/jobs"):
        page.goto(service.address + path)
        box = page.locator("[data-select-all]").bounding_box()
        assert box
        assert box["width"] > 10
    context.close()


@pytest.mark.full
def test_a_job_is_cancelled_and_retried(
    window: WatchedContext, waiting: Service, chromium: Browser
):
    page = window.open(waiting.address + "/")
    submit(page, "example.com")
    page.get_by_role("button", name="Cancel", exact=True).last.click()
    expect(page.locator("h1 + .badge")).to_contain_text("cancelled")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("h1 + .badge")).to_contain_text("waiting")


@pytest.mark.full
def test_an_action_applies_to_all_jobs_that_match_the_filter(
    window: WatchedContext, waiting: Service
):
    page = window.open(waiting.address + "/")
    submit(page, "a.example\nb.example\nc.example")
    page.goto(waiting.address + "/jobs?status=pending")
    page.get_by_role("button", name=re.compile(r"Cancel all \d+ waiting jobs")).click()
    expect(page.locator("main")).to_contain_text("No job matches these filters.")
    shared = window.open(waiting.address + "/jobs?status=cancelled&domain=b.example")
    expect(shared.locator("#job-rows tbody tr")).to_have_count(1)
    shared.keyboard.press("Escape")
    shared.wait_for_url("**/jobs")


@pytest.mark.full
def test_the_page_of_patterns_has_no_barrier_that_axe_finds(chromium: Browser):
    with data_directory() as folder:
        machine = Machine(folder, {"SITEATLAS_LOG_LEVEL": "debug"})
        with machine.service("--no-scheduler") as service:
            for scheme in ("light", "dark"):
                context = chromium.new_context(color_scheme="dark" if scheme == "dark" else "light")
                page = WatchedContext(context).open(service.address + "/_patterns")
                assert Axe().run(page).response["violations"] == []
                context.close()


@pytest.mark.full
def test_a_chosen_theme_is_kept(window: WatchedContext, service: Service):
    page = window.open(service.address + "/")
    page.keyboard.press("t")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_everything_works_without_javascript(
    chromium: Browser, service: Service, site: SiteServer, scanned: str
):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{service.address}/")
    page.get_by_role("link", name="Scan a site").first.click()
    page.locator("main").get_by_label("Sites, one per line").fill(site.base)
    page.locator("main").get_by_role("button", name="Scan now").click()
    assert re.search(r"/jobs/\d+$", page.url)
    page.goto(f"{service.address}/domains/{scanned}?tab=tree")
    assert page.get_by_role("link", name="/b.xml").is_visible()
    context.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("scheme", "width"), [pytest.param("light", 320, marks=pytest.mark.full), ("dark", 1280)]
)
def test_no_page_has_a_barrier_that_axe_finds_or_scrolls_sideways(
    chromium: Browser, service: Service, scanned: str, scheme: str, width: int
):
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 800},
    )
    window, found = WatchedContext(context), {}
    for path in [*PATHS, *(f"/domains/{scanned}?tab={tab}" for tab in TABS), "/jobs/1"]:
        page = window.open(service.address + path)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found[path] = ["scrolls sideways", *page.evaluate(WIDE_ELEMENTS, width)]
        results = Axe().run(page)
        violations = results.response["violations"]
        if violations:
            nodes = [(one["id"], one["nodes"][0]["html"][:120]) for one in violations]
            found[path] = [f"{name}: {html}" for name, html in nodes]
        page.close()
    context.close()
    assert found == {}
    assert window.faults == []
