"""Commands whose output is read only in part, as `head` does."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from siteatlas.storage.session import Database
from tests.fixtures.changes import add_changes, add_published_scan
from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls

pytestmark = pytest.mark.slow
# More than a pipe holds.
MANY = 8_000


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        "urls example.com --all --format urls",
        "urls example.com --all",
        "urls example.com --all --format csv",
        "changes example.com --all",
        "changes example.com --all --format jsonl",
        "compare example.com list.txt",
        "export example.com",
    ],
)
async def test_a_reader_that_has_enough_ends_the_command_with_0(
    database: Database, database_url: str, tmp_path: Path, arguments: str
):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        urls = [(n, f"https://example.com/{n}") for n in range(MANY)]
        await add_urls(session, sitemap.id, urls)
        scan = await add_published_scan(session, domain, finished_at=datetime.now(UTC))
        await add_changes(session, scan, sitemap, range(MANY))
    (tmp_path / "list.txt").write_text("https://example.com/mine\n")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    script = f"{COMMAND} {arguments} | head -n 1"
    result = machine.execute(["bash", "-o", "pipefail", "-c", script])
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 1
