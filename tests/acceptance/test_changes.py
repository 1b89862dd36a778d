"""`siteatlas changes`, `robots` and `domains show`: the stored feed as readable text."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from siteatlas.storage.models import LOCAL_USER_ID, FeedHead, RobotsFile
from siteatlas.storage.session import Database
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.commands import Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job, add_scan, add_sitemap

SHORT = ["when", "kind", "url", "sitemap", "lastmod_before", "lastmod_after"]
pytestmark = pytest.mark.slow
NOW = datetime.now(UTC)


@pytest.fixture
def machine(tmp_path: Path, database_url: str) -> Machine:
    """A machine that uses the database of the test."""
    return Machine(tmp_path, {"DATABASE_URL": database_url})


async def publish(
    name: str = "example.com", *, age_days: int = 0, hashes: int = 2, **columns: Any
) -> None:
    """A site with a published scan that ended so many days ago."""
    moment = NOW - timedelta(days=age_days)
    async with transaction() as session:
        domain = await add_domain(session, name)
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(
            session, domain, finished_at=moment, change_counts={"added": hashes}
        )
        await add_event(session, domain, "sitemap_added", scan, sitemap=sitemap.url)
        await add_changes(session, scan, sitemap, range(hashes), not_after=moment, **columns)


async def test_the_changes_since_a_time_are_printed_below_their_scans(
    database: Database, machine: Machine
):
    await publish("old.example", age_days=8)
    await publish()
    result = machine.run("changes", "--since", "7d")
    assert result.returncode == 0, result.stderr
    heading, *lines = result.stdout.splitlines()
    assert heading.startswith("example.com, sequence number 2, scan ")
    assert lines == [
        "  * sitemap_added https://example.com/sitemap.xml",
        "  + https://example.com/0",
        "  + https://example.com/1",
    ]
    older = machine.run("changes", "old.example", "--since", "9d", "--kinds", "added")
    assert older.stdout.splitlines()[1:] == [
        "  + https://old.example/0",
        "  + https://old.example/1",
    ]


async def test_a_failed_scan_has_its_time_and_its_reason(database: Database, machine: Machine):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_event(session, domain, "scan_failed", data={"error_code": "no_sitemap"})
    heading, *lines = machine.run("changes").stdout.splitlines()
    assert re.fullmatch(
        r"example\.com, \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, sequence number 1", heading
    )
    assert lines == [
        "  ! scan_failed",
        "      no_sitemap: No sitemap was found in robots.txt or at the common paths.",
    ]


@pytest.mark.full
async def test_the_newest_changes_are_printed_unless_others_are_asked_for(
    database: Database, machine: Machine
):
    await publish("old.example", age_days=8)
    await publish("new.example", hashes=1)
    newest = machine.run("changes", "--limit", "3")
    lines = newest.stdout.splitlines()
    assert [line for line in lines if line.startswith("  ")] == [
        "  * sitemap_added https://old.example/sitemap.xml",
        "  * sitemap_added https://new.example/sitemap.xml",
        "  + https://new.example/0",
    ]
    assert "the newest 3 changes" in newest.stderr
    assert "--since" in newest.stderr
    whole = machine.run("changes", "--all")
    assert sum(line.startswith("  ") for line in whole.stdout.splitlines()) == 5
    assert whole.stderr == ""


async def test_a_message_says_that_some_of_the_newest_changes_may_be_missing(
    database: Database, machine: Machine
):
    large = {"extras": {"images": [{"loc": "x" * 100_000}]}}
    await publish(hashes=60, after=large)
    result = machine.run("changes")
    shown = [line for line in result.stdout.splitlines() if line.startswith("  +")]
    assert 30 < len(shown) < 60
    assert "some may be missing" in result.stderr
    assert "There are no such changes." in machine.run("changes", "--kinds", "removed").stderr


async def test_programs_read_the_changes_of_a_week_from_the_oldest(
    database: Database, machine: Machine
):
    await publish("old.example", age_days=8)
    await publish()
    result = machine.run("changes", "--format", "jsonl", "--limit", "1")
    assert json.loads(result.stdout)["domain"] == "example.com"
    assert "--cursor" in result.stderr


@pytest.mark.full
async def test_the_rest_is_printed_from_the_cursor(database: Database, machine: Machine):
    await publish(hashes=5)
    first = machine.run("changes", "--since", "0", "--limit", "3", "--format", "jsonl")
    assert "--cursor" in first.stderr
    cursor = first.stderr.split()[-1]
    rest = machine.run("changes", "--cursor", cursor, "--format", "jsonl")
    events = [json.loads(line) for line in (first.stdout + rest.stdout).splitlines()]
    assert [event["kind"] for event in events] == ["sitemap_added", *["added"] * 5]

    def printed(columns: str) -> str:
        return machine.run("changes", "--format", "csv", "--columns", columns).stdout

    assert printed("short").splitlines()[0].replace('"', "").split(",") == SHORT
    assert machine.run("changes", "--format", "csv").stdout == printed("short")
    rows = list(csv.DictReader(printed("all").splitlines()))
    assert [row["id"] for row in rows] == [event["id"] for event in events]


@pytest.mark.full
async def test_a_wrong_choice_is_refused_with_the_choices(database: Database, machine: Machine):
    result = machine.run("changes", "--kinds", "nothing")
    assert result.returncode == 2
    assert "added" in result.stderr
    assert machine.run("changes", "--since", "soon").returncode == 2
    assert machine.run("changes", "unknown.example").returncode == 1


async def test_an_expired_position_is_reported(database: Database, machine: Machine):
    await publish()
    async with transaction() as session:
        (await session.get_one(FeedHead, 1)).retained_from = 1
    result = machine.run("changes", "--since", "0")
    assert result.returncode == 2
    assert "cursor_expired" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        "changes example.com --since 7",
        "urls example.com --at 7",
        "export example.com --at 7",
        "export --what changes --after 7",
        "webhooks replay 00000000-0000-4000-8000-000000000000 --since 7",
    ],
)
async def test_a_number_beyond_the_head_is_refused_with_the_number_that_was_reached(
    database: Database, machine: Machine, arguments: str
):
    await publish()
    result = machine.run(*arguments.split())
    assert result.returncode == 2
    assert result.stderr == "siteatlas: input_invalid: The change feed has only reached number 1.\n"


async def test_follow_says_that_it_waits_and_prints_what_is_published_later(
    database: Database, machine: Machine
):
    await publish("earlier.example")
    with machine.process("changes", "--follow", "--format", "jsonl") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        said = [await asyncio.to_thread(following.stderr.readline) for _ in range(2)]
        assert said == [
            "Following changes after sequence number 1. Press Ctrl-C to stop.\n",
            "No worker is running. Start one: siteatlas serve\n",
        ]
        printed = asyncio.create_task(asyncio.to_thread(following.stdout.readline))
        for number in range(60):
            await publish(f"{number}.example")
            await asyncio.wait([printed], timeout=0.5)
            if printed.done():
                break
        assert json.loads(printed.result())["domain"] != "earlier.example"
        assert following.poll() is None


@pytest.mark.full
async def test_the_scans_of_a_site_are_listed_with_their_numbers(
    database: Database, machine: Machine
):
    async with transaction() as session:
        domain = await add_domain(session)
        failed = await add_scan(
            session, domain, await add_job(session, domain), state="failed", error_code="no_sitemap"
        )
        done = await add_published_scan(
            session,
            domain,
            finished_at=NOW + timedelta(seconds=90),
            started_at=NOW,
            url_count=1200,
            change_counts={"added": 2, "removed": 1, "moved": 0},
        )
    head, *rows = machine.run("scans", "example.com").stdout.splitlines()
    assert head.split()[:5] == ["SCAN", "STATE", "STARTED", "DURATION", "URLS"]
    assert [row.split()[:2] for row in rows] == [
        [str(done.id), "published"],
        [str(failed.id), "failed"],
    ]
    assert "90.0 s  1200  2 added, 1 removed" in rows[0]
    page = machine.json("scans", "example.com", "--limit", "1")
    assert [scan["id"] for scan in page["items"]] == [done.id]
    rest = machine.json("scans", "example.com", "--cursor", page["next_cursor"])
    assert [scan["id"] for scan in rest["items"]] == [failed.id]


@pytest.mark.full
async def test_a_site_says_what_its_last_scan_changed_and_what_is_held(
    database: Database, machine: Machine
):
    await publish()
    shown = machine.run("domains", "show", "example.com")
    assert "2 added" in next(
        line for line in shown.stdout.splitlines() if line.startswith("last_scan_changes")
    )
    assert machine.json("domains", "show", "example.com")["last_scan_changes"] == {"added": 2}


async def test_the_list_of_sites_says_why_a_scan_failed_or_is_partial(
    database: Database, machine: Machine
):
    async with transaction() as session:
        await add_domain(
            session, "a.example", last_scan_status="failed", last_error_code="no_sitemap"
        )
        domain = await add_domain(session, "b.example", last_scan_status="partial")
        reasons = ["server_error", "truncated"]
        await add_published_scan(session, domain, partial=True, reasons=reasons)
        await add_domain(session, "c.example", last_scan_status="completed")
    failed, partial, completed = machine.run("domains", "list").stdout.splitlines()[1:]
    assert "No sitemap was found in robots.txt or at the common paths." in failed
    assert "The site returned a server error. (1 more: siteatlas jobs show)" in partial
    assert completed.split()[3:6] == ["0", "completed", "-"]
    listed = machine.json("domains", "list")["items"]
    assert [site["reasons"] for site in listed] == [[], reasons, []]


async def test_the_creator_of_a_site_is_shown_by_name(database: Database, machine: Machine):
    await publish()
    shown = machine.run("domains", "show", "example.com").stdout.splitlines()
    assert [line.split()[1:] for line in shown if line.startswith("created_by")] == [["local"]]
    printed = machine.json("domains", "show", "example.com")
    assert printed["created_by"] == str(LOCAL_USER_ID)


@pytest.mark.full
async def test_the_robots_file_is_printed_with_its_history(database: Database, machine: Machine):
    async with transaction() as session:
        domain = await add_domain(session)
        for text in ("User-agent: *\nDisallow: /a\n", "User-agent: *\nDisallow: /b\n"):
            session.add(
                RobotsFile(
                    domain_id=domain.id,
                    origin="https://example.com",
                    content_hash=text,
                    content=text,
                    http_status=200,
                )
            )
            await session.flush()
    assert machine.run("robots", "example.com").stdout == "User-agent: *\nDisallow: /b\n"
    lines = machine.run("robots", "example.com", "--history").stdout.splitlines()
    assert lines[0].startswith("https://example.com/robots.txt, ")
    assert lines[1:4] == ["   User-agent: *", "  -Disallow: /a", "  +Disallow: /b"]
    assert lines[5:] == ["  User-agent: *", "  Disallow: /a"]
    newest, first = machine.json("robots", "example.com", "--history")["items"]
    assert (first["diff"], newest["content"]) == (None, "User-agent: *\nDisallow: /b\n")
