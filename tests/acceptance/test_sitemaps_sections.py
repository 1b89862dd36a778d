"""`siteatlas sections` and `policy`: the URLs of a site by section, and who may fetch them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from siteatlas.storage.models import RobotsFile
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


ROBOTS = "User-agent: *\nDisallow: /blog/x\nUser-agent: GPTBot\nDisallow: /blog/\n"


async def test_the_policy_of_a_stored_site_is_printed_by_section(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_sitemap(session, domain, url_breakdown=COUNTS)
        values = {"domain_id": domain.id, "origin": "https://example.com", "content_hash": "x"}
        session.add(RobotsFile(**values, content=ROBOTS, http_status=200))
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    printed = machine.run("policy", "example.com")
    assert printed.returncode == 0, printed.stderr
    header, *rows = (line.split("  ") for line in printed.stdout.splitlines())
    assert [part.strip() for part in header if part] == ["AGENT", "FETCHES FOR", "/", "/blog/"]
    cells = {row[0]: [part.strip() for part in row[1:] if part] for row in rows}
    assert cells["GPTBot"] == ["ai_training", "yes, except 1", "no"]
    assert cells["Bingbot"] == ["search", "yes, except 1", "yes, except 1"]
    found = machine.json("policy", "example.com", "--agent", "GPTBot", "--path", "/blog/a")
    (decision,) = found["agents"][0]["decisions"]
    assert (decision["allowed"], decision["line"]) == (False, 4)


def test_the_policy_of_a_file_needs_no_database(tmp_path: Path):
    machine = Machine(tmp_path)
    (tmp_path / "robots.txt").write_text(ROBOTS + "Content-Signal: ai-train=yes, x=1\n")
    printed = machine.run("policy", "--file", "robots.txt", "--agent", "GPTBot", "--path", "/blog/")
    assert [line.split() for line in printed.stdout.splitlines()] == [
        ["AGENT", "FETCHES", "FOR", "PATH", "ALLOWED", "LINE", "RULE"],
        ["GPTBot", "ai_training", "/blog/", "no", "4", "Disallow:", "/blog/"],
    ]
    assert "“x” is not a known signal." in printed.stderr
    assert machine.run("policy").returncode == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "robots.txt"]
