"""Pages of other origins in a real browser cannot use a service in local mode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser

from tests.fixtures.browser import load_page
from tests.fixtures.commands import Machine
from tests.fixtures.embedded import data_directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

REBOUND = "rebound.example"
OWN_JOBS = "fetch('/api/v3/jobs').then(r => r.json()).then(page => page.items.length)"
PAGE = """<!doctype html><title>hostile</title><body><form id="form" method="post"
 action="{target}/scan" target="frame" enctype="application/x-www-form-urlencoded">
<input name="sites" value="example.com"></form><iframe name="frame"></iframe><pre id="out"></pre>
<script>
const target = "{target}", scan = target + "/api/v3/sitemap/scan";
const body = JSON.stringify({{base_url: "example.com"}});
const tries = {{
  read: () => fetch(target + "/api/v3/jobs", {{credentials: "include"}}).then(r => r.text()),
  json: () => fetch(scan, {{method: "POST", body, credentials: "include",
    headers: {{"Content-Type": "application/json"}}}}),
  plain: () => fetch(scan, {{method: "POST", body, mode: "no-cors", credentials: "include"}}).then(r => r.type),
  health: () => fetch(target + "/health").then(r => r.json()),
}};
(async () => {{
  document.getElementById("form").submit();
  for (const [name, attempt] of Object.entries(tries)) {{
    let result;
    try {{ result = "done " + await attempt(); }} catch (error) {{ result = "failed"; }}
    document.getElementById("out").textContent += name + "=" + result + ";";
  }}
  document.title = "finished";
}})();
</script>"""


@contextmanager
def hostile_site(target: str) -> Iterator[int]:
    """The port of a site whose page tries to use the service at `target`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = PAGE.format(target=target).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "by_name",
    [
        pytest.param(False, id="another origin"),
        pytest.param(True, id="a rebound name", marks=pytest.mark.full),
    ],
)
def test_a_page_of_another_origin_starts_no_scan_and_reads_nothing(
    chromium_program: str, by_name: bool
):
    with data_directory() as folder, Machine(folder).service("--no-scheduler") as service:
        port = service.address.rpartition(":")[2]
        target = f"http://{REBOUND}:{port}" if by_name else service.address
        rules = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
        with hostile_site(target) as hostile:
            page = load_page(chromium_program, f"http://{REBOUND}:{hostile}/", rules)
        assert "<title>finished</title>" in page.html
        (out,) = re.findall(r'<pre id="out">([^<]*)</pre>', page.html)
        check_attempts(out)
        assert service.request_json("/api/v3/jobs")["items"] == []


def check_attempts(out: str) -> None:
    """All attempts of the hostile page failed, as far as it can see."""
    results = dict(part.split("=", 1) for part in out.strip(";").split(";"))
    assert {name: results[name] for name in ("read", "json", "health")} == {
        "read": "failed",
        "json": "failed",
        "health": "failed",
    }
    assert results["plain"] in {"failed", "done opaque"}


@pytest.mark.full
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same site", "another site"])
def test_a_page_of_another_origin_cannot_use_the_session_of_a_browser(chromium: Browser, host: str):
    """A page on another port of the same host is of the same site: it sends the cookie along."""
    with data_directory() as folder:
        machine = Machine(folder)
        key = machine.json("keys", "create", "--name", "ann", "--scope", "admin")["key"]
        with machine.service("--no-scheduler") as service, hostile_site(service.address) as hostile:
            context = chromium.new_context()
            page = context.new_page()
            page.goto(f"{service.address}/login")
            page.get_by_label("Access key").fill(key)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{service.address}/")
            assert page.evaluate(OWN_JOBS) == 0
            stranger = context.new_page()
            stranger.goto(f"http://{host}:{hostile}/")
            stranger.wait_for_function("document.title === 'finished'")
            check_attempts(stranger.locator("#out").inner_text())
            assert page.evaluate(OWN_JOBS) == 0
            context.close()
