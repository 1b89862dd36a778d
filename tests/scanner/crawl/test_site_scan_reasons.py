"""A scan without results ends with the most precise reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web

from siteatlas.scanner.reading.head import error_of_page, read_page
from tests.fixtures.raw_server import Connection, RawServer
from tests.fixtures.scans import record_scan
from tests.scanner.conftest import QUICK

PAGE = "<!DOCTYPE html><html><head><title>{}</title></head><body>x</body></html>"


def status(code: int, **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=code, headers=named)


async def test_a_site_that_demands_payment_is_reported_with_its_price(site, make_analyzer):
    site.otherwise = status(402, Crawler_Price="USD 0.01")
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "payment_required"
    assert "USD 0.01" in str(record.error)


@pytest.mark.parametrize("code", [401, 403, 451])
async def test_a_site_that_refuses_everything_is_blocked(site, make_analyzer, code):
    site.otherwise = status(code)
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "blocked"


@pytest.mark.parametrize("title", ["Just a moment...", "Attention Required! | Cloudflare"])
async def test_a_challenge_for_browsers_everywhere_is_blocked(site, make_analyzer, title):
    site.otherwise = PAGE.format(title)
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "blocked"


@pytest.mark.parametrize(
    ("code", "robots"),
    [(403, status(403, cf_mitigated="challenge")), (503, "# none")],
)
async def test_a_challenge_that_a_firewall_announces_is_blocked(site, make_analyzer, code, robots):
    site.pages["/robots.txt"] = robots
    site.otherwise = status(code, cf_mitigated="challenge")
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "blocked"


async def test_an_ordinary_page_for_everything_is_absence(site, make_analyzer):
    site.otherwise = PAGE.format("Our shop")
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "no_sitemap"


async def test_server_errors_everywhere_but_in_robots_txt_are_server_errors(site, make_analyzer):
    site.pages |= {"/robots.txt": "# none"}
    site.otherwise = status(500)
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "server_error"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("{}", "not_a_sitemap"),
        ("<urlset><url>", "truncated"),
        ("<urlset><url><loc></url></urlset>", "xml_malformed"),
        ("<html></html>", "no_sitemap"),
    ],
)
async def test_the_reason_is_reported_if_the_only_guess_is_unreadable(
    site, make_analyzer, body, code
):
    site.pages |= {"/sitemap.xml": body}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == code


async def test_empty_answers_for_everything_are_absence(site, make_analyzer):
    site.otherwise = b""
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "no_sitemap"


async def test_a_site_that_asks_us_to_wait_at_its_home_page_is_left_alone(site, make_analyzer):
    site.pages |= {"/": status(429, Retry_After="100")}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.error_code == "rate_limited"
    assert site.paths == ["/robots.txt", "/"]


@pytest.mark.slow
async def test_a_site_that_never_answers_is_a_timeout(make_analyzer):
    async def silent(connection: Connection) -> None:
        await connection.reader.read()

    async with RawServer(silent) as server:
        limits = replace(QUICK, first_byte=0.3)
        record = await record_scan(make_analyzer(server.entry, limits=limits), server.url())
    assert record.error_code == "timeout"


def test_a_page_is_named_by_its_title_made_safe():
    error = error_of_page(PAGE.format("A &lt;b&gt;\x1b[31m \u202e shop\n" + "x" * 200))
    assert error.code == "html_instead"
    assert "“A <b> [31m shop xxxx" in error.message
    assert len(error.message) < 200
    assert read_page("<title></title>").title == ""


@pytest.mark.slow
async def test_a_site_that_keeps_us_waiting_is_given_up_after_a_few_guesses(make_analyzer):
    async def silent(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            if "/robots.txt" not in request:
                await connection.reader.read()
            await connection.answer(b"# nothing")

    limits = replace(QUICK, first_byte=0.1, document=0.3)
    async with RawServer(silent) as server:
        record = await record_scan(make_analyzer(server.entry, limits=limits), server.url())
    assert record.error_code == "timeout"
    assert len(record.verdicts) == 3
