"""`siteatlas sections`: the URLs of a site by section and by month."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from siteatlas.storage.session import Database
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap

pytestmark = pytest.mark.slow

COUNTS = {
    "sections": {"/blog/": 6, "/": 3},
    "other": 1,
    "months": {"2026-10": 4},
    "other_months": 0,
    "undated": 6,
}


async def test_sections_and_months_are_printed_with_their_share(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        await add_sitemap(session, await add_domain(session), url_breakdown=COUNTS)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    sections = machine.run("sections", "example.com")
    assert sections.returncode == 0, sections.stderr
    assert [line.split() for line in sections.stdout.splitlines()] == [
        ["SECTION", "URLS", "SHARE"],
        ["/blog/", "6", "60%"],
        ["/", "3", "30%"],
        ["(other)", "1", "10%"],
    ]
    months = machine.run("sections", "example.com", "--months")
    assert [line.split() for line in months.stdout.splitlines()[1:]] == [
        ["2026-10", "4", "40%"],
        ["(none)", "6", "60%"],
    ]
    shown = machine.run("sections", "example.com", "--limit", "1", "--json")
    assert json.loads(shown.stdout)["other_url_count"] == 4
