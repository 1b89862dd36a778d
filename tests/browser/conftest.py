"""A running service, a site that it may scan, and Chromium to open its pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    sync_playwright,
)

from tests.fixtures.browser import QUIET
from tests.fixtures.commands import Machine, Service
from tests.fixtures.embedded import data_directory
from tests.fixtures.pipeline import index, pages, urlset
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site


@dataclass
class WatchedContext:
    """A browser window that remembers what went wrong in it."""

    context: BrowserContext
    faults: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """A page, loaded."""
        page = self.context.new_page()
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(url)
        return page

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(message.text)

    def stop_foreign_requests(self) -> None:
        """Refuse and note every request that leaves this machine."""

        def check(route: Route) -> None:
            if route.request.url.startswith(("http://127.", "data:")):
                route.continue_()
            else:
                self.faults.append(f"request to {route.request.url}")
                route.abort()

        self.context.route("**/*", check)


@pytest.fixture(scope="module")
def chromium(chromium_program: str) -> Iterator[Browser]:
    """Chromium of the system; it refuses its sandbox to root."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments = [flag for flag in QUIET if flag != "--headless"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_program, args=[*arguments, *sandbox]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    """A small site with an index."""
    content = {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index(["{base}/a.xml", "{base}/b.xml"]),
        "/a.xml": urlset(pages("a", 60)),
        "/b.xml": urlset(pages("b", 5)),
    }
    with running_site(content) as server:
        yield server


@pytest.fixture(scope="module")
def service(site: SiteServer) -> Iterator[Service]:
    """A running service that may scan the site."""
    with data_directory() as folder:
        machine = Machine(folder, {"SITEATLAS_EGRESS_ALLOW": site.host_port})
        with machine.service() as running:
            yield running


@pytest.fixture
def window(chromium: Browser) -> Iterator[WatchedContext]:
    """A browser window of 1,280 pixels; nothing may go wrong in it."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    watched = WatchedContext(context)
    watched.stop_foreign_requests()
    yield watched
    context.close()
    assert watched.faults == []
