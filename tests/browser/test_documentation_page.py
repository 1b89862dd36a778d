"""The API documentation in a real browser, without any network but loopback."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape

import pytest
from fastapi.routing import APIRoute

from siteatlas.api.routes import ROUTERS
from tests.fixtures.browser import LoadedPage, load_page
from tests.fixtures.commands import Machine
from tests.fixtures.embedded import data_directory

SUMMARIES = [
    route.summary
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.summary
]


@pytest.fixture(scope="module")
def page(chromium_program: str) -> Iterator[LoadedPage]:
    """The API reference of a running service."""
    with data_directory() as folder, Machine(folder).service("--no-scheduler") as service:
        yield load_page(chromium_program, service.address + "/docs")


def test_the_documentation_shows_every_operation(page: LoadedPage) -> None:
    assert "/api/v3/sitemap/scan" in page.html
    shown = unescape(page.html)
    assert [summary for summary in SUMMARIES if summary not in shown] == []


def test_the_documentation_breaks_no_rule_of_its_own_security_policy(page: LoadedPage) -> None:
    assert [line for line in page.console if "Refused" in line or "violates" in line] == []
