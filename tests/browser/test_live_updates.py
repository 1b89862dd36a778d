"""The event stream in Chromium: lost and regained, paused in a hidden tab."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import WatchedContext
from tests.fixtures.commands import Machine, Service
from tests.fixtures.embedded import data_directory

pytestmark = pytest.mark.slow

TIMEOUT_MS = 30_000
# The page tries again this often to open a stream that never began.
RETRY_MS = 5_000
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
COUNT_STREAMS = """() => {
  window.streams = 0;
  document.addEventListener("htmx:sse:after:connection", () => window.streams++);
}"""


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def service_on(machine: Machine, port: int) -> Iterator[Service]:
    """A service on this port, which it can be started on again."""
    with machine.process("serve", "--no-scheduler", "--port", str(port)) as started:
        assert started.stdout is not None
        address = started.stdout.readline().strip()
        assert address, started.communicate()[1]
        yield Service(started, address)


def live_state(page: Page, state: str, *, timeout: float = TIMEOUT_MS) -> None:
    """Wait until the page says that its stream is in this state."""
    dot = page.locator("[data-live]")
    expect(dot).to_have_attribute("data-state", state, timeout=timeout)


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_stream_that_is_lost_is_regained_and_the_page_catches_up(chromium: Browser):
    port = free_port()
    context = chromium.new_context()
    page = context.new_page()
    with data_directory() as folder:
        machine = Machine(folder)
        with service_on(machine, port) as service:
            page.goto(service.address + "/jobs")
            live_state(page, "live")
        live_state(page, "lost")
        assert page.locator("[data-live]").inner_text() == "Reconnecting"
        with service_on(machine, port) as service:
            service.request_json("/api/v3/sitemap/scan", {"base_url": "example.com"})
            live_state(page, "live")
            expect(page.locator("#job-rows tbody tr")).to_have_count(1, timeout=TIMEOUT_MS)
    context.close()


@pytest.mark.full
def test_a_page_that_never_got_its_stream_opens_it_later(chromium: Browser, service: Service):
    context = chromium.new_context()
    context.route("**/events", lambda route: route.abort())
    page = context.new_page()
    page.goto(service.address + "/")
    live_state(page, "lost")
    context.unroute("**/events")
    live_state(page, "live")
    assert page.locator("[data-live]").inner_text() == "Live"
    context.close()


@pytest.mark.full
def test_the_stream_opens_also_when_the_extension_is_the_last_to_load(
    chromium: Browser, service: Service
):
    context = chromium.new_context()
    page = context.new_page()
    held: dict[str, Route] = {}
    streams: list[bool] = []
    page.route("**/hx-sse*", lambda route: held.update(extension=route))
    page.on("request", lambda request: streams.append(request.url.endswith("/events")))
    with page.expect_response("**/htmx.min.js*"):
        page.goto(service.address + "/", wait_until="commit")
    page.wait_for_timeout(500)
    held["extension"].continue_()
    live_state(page, "live", timeout=RETRY_MS / 2)
    page.wait_for_timeout(RETRY_MS)
    assert sum(streams) == 1
    context.close()


@pytest.mark.full
def test_a_hidden_tab_holds_no_stream(window: WatchedContext, service: Service):
    page = window.open(service.address + "/")
    live_state(page, "live")
    page.evaluate(COUNT_STREAMS)
    page.evaluate(HIDE, True)
    page.wait_for_timeout(2500)
    assert page.evaluate("window.streams") == 0
    with page.expect_response("**/events", timeout=TIMEOUT_MS):
        page.evaluate(HIDE, False)
    live_state(page, "live")


def test_a_new_version_of_the_service_asks_for_a_reload(window: WatchedContext, service: Service):
    page = window.open(service.address + "/")
    live_state(page, "live")
    page.evaluate("document.querySelector('#live').dataset.version = '0.0.1'")
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)
    expect(page.locator("#toasts")).to_contain_text("Reload the page", timeout=TIMEOUT_MS)
