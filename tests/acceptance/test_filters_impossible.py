"""Filters that can never match are refused, instead of an empty list that looks like an answer."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from siteatlas.cli.terminal.filters import FULL_URL_HINT
from siteatlas.storage.session import Database
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap

pytestmark = pytest.mark.slow


@pytest.mark.full
@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ("--prefix /guides/", f"--prefix is compared with full URLs. {FULL_URL_HINT}"),
        ("--url example.com/a", f"--url is compared with full URLs. {FULL_URL_HINT}"),
        (
            "--lastmod-from 2026-02-01 --lastmod-to 2026-01-01",
            "--lastmod-from must be earlier than --lastmod-to.",
        ),
        (
            "--first-seen-from 1d --first-seen-to 2d",
            "--first-seen-from must be earlier than --first-seen-to.",
        ),
    ],
)
@pytest.mark.parametrize("command", ["urls", "export"])
def test_a_filter_that_nothing_can_match_is_refused(
    tmp_path: Path, command: str, filters: str, message: str
):
    result = Machine(tmp_path).run(command, "example.com", *filters.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"siteatlas: input_invalid: {message}\n"


@pytest.mark.full
@pytest.mark.parametrize("command", ["urls", "urls example.com", "export example.com"])
async def test_an_unknown_sitemap_is_not_found(
    database: Database, database_url: str, tmp_path: Path, command: str
):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        other = await add_sitemap(session, await add_domain(session, "other.example"))
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    for known in (str(sitemap.id), sitemap.url):
        assert machine.run(*command.split(), "--sitemap", known).returncode == 0
    unknown = ["https://example.com/none.xml", str(uuid4())]
    unknown += [other.url] if "example.com" in command else []
    for name in unknown:
        result = machine.run(*command.split(), "--sitemap", name)
        assert (result.returncode, result.stdout) == (1, "")
        assert "sitemap_not_found" in result.stderr


@pytest.mark.full
async def test_the_jobs_of_an_unknown_site_are_not_an_empty_list(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        await add_domain(session)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    assert machine.run("jobs", "list", "--domain", "example.com").stderr == "No job matches.\n"
    result = machine.run("jobs", "list", "--domain", "nosuch.example")
    assert result.returncode == 1
    assert "domain_not_found" in result.stderr
