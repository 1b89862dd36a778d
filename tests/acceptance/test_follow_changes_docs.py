"""The program of the page on following changes runs as it is written, against a running service."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from siteatlas.storage.models import Domain, Sitemap
from siteatlas.storage.session import Database
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "follow-changes.md"
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.full
@pytest.mark.slow
async def test_the_program_keeps_its_copy_up_to_date(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        domain = await add_domain(session)
        old = await add_sitemap(session, domain, "old.xml")
        new = await add_sitemap(session, domain, "new.xml")
        await add_urls(session, old.id, [(n, f"https://example.com/{n}") for n in range(1500)])
        await add_published_scan(session, domain)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    with machine.service("--no-scheduler") as service:
        program = PROGRAM.replace("http://localhost:8000", service.address)
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        ) as reader:
            try:
                entries = await entries_at_first_event(reader, domain, new)
                async with transaction() as session:
                    scan = await add_published_scan(session, domain)
                    await add_changes(session, scan, new, [1], "moved", previous_sitemap_id=old.id)
                    await add_changes(session, scan, old, [2], "removed", after=None)
                    scan = await add_published_scan(session, domain)
                    await add_event(session, domain, "baseline", scan, sitemap_id=old.id)
                assert reader.stdout is not None
                printed = [await asyncio.to_thread(reader.stdout.readline) for _ in range(3)]
            finally:
                reader.kill()
    assert sorted(line.split()[0] for line in printed[:2]) == ["moved", "removed"]
    # This test has not changed the rows of the old sitemap: a baseline reads them all again.
    kind, *_, last = printed[-1].split()
    assert (kind, int(last) - entries) == ("baseline", 1)


async def entries_at_first_event(
    reader: subprocess.Popen[str], domain: Domain, sitemap: Sitemap
) -> int:
    """Publish until the program prints an event; how many entries it has then."""
    assert reader.stdout is not None
    first = asyncio.create_task(asyncio.to_thread(reader.stdout.readline))
    while not first.done():
        assert reader.poll() is None
        async with transaction() as session:
            scan = await add_published_scan(session, domain)
            await add_changes(session, scan, sitemap, [5000])
        await asyncio.wait([first], timeout=1)
    assert first.result().startswith("added https://example.com/5000 ")
    return int(first.result().split()[-1])
