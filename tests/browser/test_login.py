"""A closed installation in Chromium: refused without a key, in with one, out again."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import WatchedContext
from tests.fixtures.commands import TIMEOUT_SECONDS, Machine, Service
from tests.fixtures.embedded import data_directory

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def closed() -> Iterator[tuple[Service, dict[str, str]]]:
    """A closed service, and its keys by scope."""
    with data_directory() as folder, Machine(folder).service("--no-scheduler") as service:
        admin = make_key(service, "admin")
        yield service, {"admin": admin, "read": make_key(service, "read", admin)}


def make_key(service: Service, scope: str, key: str = "") -> str:
    """The text of a new key; the first one is made in local mode."""
    body = json.dumps({"name": f"{scope}er", "scopes": [scope]}).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{service.address}/api/v3/keys", body, headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        return str(json.load(answer)["key"])


def log_in(page: Page, key: str) -> None:
    """Fill in the form of the login page."""
    page.get_by_label("Access key").fill(key)
    # Until its scripts are loaded, a page asks its questions on pages of their own.
    with page.expect_navigation():
        page.get_by_role("button", name="Log in").click()


def test_without_a_key_every_page_leads_to_the_login(
    window: WatchedContext, closed: tuple[Service, dict[str, str]]
):
    service, _ = closed
    page = window.open(service.address + "/jobs")
    expect(page).to_have_url(re.compile(r"/login\?next=/jobs$"))
    log_in(page, "sa_wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    assert Axe().run(page).response["violations"] == []


def test_a_key_opens_the_page_that_was_asked_for_and_logging_out_closes_it(
    window: WatchedContext, closed: tuple[Service, dict[str, str]]
):
    service, keys = closed
    page = window.open(service.address + "/jobs")
    log_in(page, keys["read"])
    expect(page.locator("h1")).to_have_text("Jobs")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    assert page.get_by_role("link", name="Keys").count() == 0
    page.locator(".menu summary").click()
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    page.goto(service.address + "/jobs")
    expect(page.locator("h1")).to_have_text("Log in")


def test_an_administrator_makes_a_key_sees_it_once_and_revokes_it(
    window: WatchedContext, closed: tuple[Service, dict[str, str]]
):
    service, keys = closed
    page = window.open(service.address + "/keys")
    log_in(page, keys["admin"])
    page.get_by_label("What is it for?").fill("nightly export")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#new-key")).to_contain_text("sa_")
    with page.expect_navigation():
        page.get_by_role("link", name="Done").click()
    row = page.locator("tr", has_text="nightly export")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")


@pytest.mark.full
def test_a_question_that_is_denied_revokes_nothing(
    window: WatchedContext, closed: tuple[Service, dict[str, str]]
):
    service, keys = closed
    page = window.open(service.address + "/keys")
    log_in(page, keys["admin"])
    page.on("dialog", lambda dialog: dialog.dismiss())
    row = page.locator("tr", has_text="reader")
    row.get_by_role("button", name="Revoke").click()
    page.reload()
    expect(row).to_contain_text("active")


@pytest.mark.full
@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_access_have_no_barrier_that_axe_finds(
    chromium: Browser, closed: tuple[Service, dict[str, str]], scheme: str, width: int
):
    service, keys = closed
    context = chromium.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 800},
    )
    page = context.new_page()
    page.goto(service.address + "/keys")
    assert Axe().run(page).response["violations"] == []
    log_in(page, keys["admin"])
    expect(page.locator("h1")).to_have_text("Access keys")
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
