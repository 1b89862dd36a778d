"""`siteatlas export`, and the page on DuckDB and pandas, run as they are written."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from siteatlas.storage.session import Database
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "load-into-duckdb-and-pandas.md"
TEXT = PAGE.read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(QUERIES,) = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
RUN_QUERIES = """
import sys, json, duckdb
for query in sys.argv[1].split(";")[:2]:
    print(json.dumps(duckdb.sql(query).fetchall(), default=str))
"""


@pytest.fixture
def machine(tmp_path: Path, database_url: str) -> Machine:
    """A machine that uses the database of the test."""
    return Machine(tmp_path, {"DATABASE_URL": database_url})


async def add_site() -> None:
    """A site with two sections, and an image."""
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        urls = [(n, f"https://example.com/blog/{n}") for n in range(3)]
        await add_urls(session, sitemap.id, urls)
        image = {"images": [{"loc": "https://example.com/a.png"}]}
        await add_urls(session, sitemap.id, [(9, "https://example.com/shop/x")], extras=image)


def run_python(code: str, *arguments: str, cwd: Path) -> str:
    """The output of a program, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


async def test_the_page_on_duckdb_works_as_written(
    database: Database, machine: Machine, tmp_path: Path
):
    await add_site()
    file = tmp_path / "urls.parquet"
    result = machine.run("export", "example.com", "--format", "parquet", "--output", str(file))
    assert result.returncode == 0, result.stderr
    sections, images = map(json.loads, run_python(RUN_QUERIES, QUERIES, cwd=tmp_path).splitlines())
    assert [row[:2] for row in sections] == [["blog", 3], ["shop", 1]]
    assert images == [["https://example.com/shop/x", "https://example.com/a.png"]]
    assert run_python(PROGRAM, cwd=tmp_path).strip().endswith("changes?after=0")


async def test_parquet_without_pyarrow_says_what_to_install(
    database: Database, machine: Machine, tmp_path: Path
):
    await add_site()
    missing = tmp_path / "modules" / "pyarrow.py"
    missing.parent.mkdir()
    missing.write_text("raise ModuleNotFoundError", encoding="utf-8")
    paths = os.pathsep.join([str(missing.parent), os.environ.get("PYTHONPATH", "")])
    export = ("export", "example.com", "--format", "parquet", "--output", "urls.parquet")
    refused = machine.run(*export, PYTHONPATH=paths)
    assert refused.returncode == 2
    assert "parquet_unavailable: Parquet needs pyarrow. Install it" in refused.stderr
    assert not (tmp_path / "urls.parquet").exists()


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("urls.parquet", (), b"PAR1"),
        ("urls.JSONL", (), b"{"),
        ("urls.csv", (), b'"url"'),
        ("urls.txt", (), b'"url"'),
        ("urls.parquet", ("--format", "jsonl"), b"{"),
    ],
)
async def test_the_suffix_of_the_file_is_its_format_unless_one_is_given(
    database: Database,
    machine: Machine,
    tmp_path: Path,
    name: str,
    options: tuple[str, ...],
    start: bytes,
):
    await add_site()
    result = machine.run("export", "example.com", "-o", name, *options)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / name).read_bytes().startswith(start)
    assert f"Exported 4 rows to {name}, complete as of sequence number 0" in result.stderr


async def test_csv_goes_to_stdout_with_filters(database: Database, machine: Machine):
    await add_site()
    result = machine.run("export", "--contains", "/blog/")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["url"] for row in rows] == [f"https://example.com/blog/{n}" for n in range(3)]
    assert "as of sequence number 0" in result.stderr


async def test_a_file_that_cannot_be_written_is_not_left_behind(
    database: Database, machine: Machine, tmp_path: Path
):
    await add_site()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "urls.csv").mkdir()
    result = machine.run("export", "example.com", "--output", str(folder / "urls.csv"))
    assert result.returncode == 1
    assert "urls.csv" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["urls.csv"]


CUT_WAITING = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
MANY = 150_000
ADD_MANY = """
    INSERT INTO sitemap_urls (sitemap_id, url_hash, url, fingerprint, first_seen_at)
    SELECT :sitemap, n, 'https://example.com/' || repeat('x', 100) || n, 1, now()
    FROM generate_series(1, :urls) n
"""


async def add_large_site() -> None:
    """A site whose export does not fit the buffers of a connection."""
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        await session.execute(text(ADD_MANY), {"sitemap": sitemap.id, "urls": MANY})


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
async def test_a_transfer_that_is_cut_is_noticed_by_the_client(
    form: str, database: Database, machine: Machine
):
    await add_large_site()
    with machine.service("--no-scheduler") as service:
        path = f"{service.address}/api/v3/domains/example.com/export?format={form}"
        with httpx.stream("GET", path, timeout=60) as response:
            assert response.status_code == 200
            chunks = response.iter_raw()
            next(chunks)
            service.process.kill()
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in chunks:
                    pass


@pytest.mark.timeout(180)
async def test_a_command_that_is_cut_off_its_database_leaves_no_file(
    database: Database, machine: Machine, tmp_path: Path
):
    await add_large_site()
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "urls.csv"
    with machine.process("export", "example.com", "--output", str(file)) as command:
        await wait_until(lambda: any(path.stat().st_size for path in folder.iterdir()))
        # Between two statements, a lost connection would simply be replaced.
        async with transaction() as session:
            await session.execute(text("LOCK TABLE sitemap_urls"))

            async def cut() -> bool:
                return (await session.execute(text(CUT_WAITING))).scalar() is not None

            await wait_until(cut)
        assert command.wait(120) != 0
    assert list(folder.iterdir()) == []
