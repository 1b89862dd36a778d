"""`siteatlas compare` and `siteatlas urls --history`; the page on comparing runs as written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from uuid import UUID

import pytest

from siteatlas.catalog import url_lists as urls
from siteatlas.catalog.urls import url_hash
from siteatlas.storage.models import FeedHead, UrlChange
from siteatlas.storage.session import Database
from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import (
    add_domain,
    add_job,
    add_scan,
    add_sitemap,
    add_sitemaps,
    add_urls,
)

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare-with-your-own-list.md"
COMMANDS = re.findall(r"```sh\nsiteatlas (.*?)\n```", PAGE.read_text(encoding="utf-8"))


async def add_site(name: str, *paths: str) -> None:
    """A site that lists these paths."""
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session, name))
        urls = [f"https://{name}/{path}" for path in paths]
        await add_urls(session, sitemap.id, [(url_hash(url), url) for url in urls])


@pytest.mark.full
async def test_the_commands_of_the_page_compare(
    database: Database, database_url: str, tmp_path: Path
):
    await add_site("example.com", "a", "b")
    await add_site("staging.example.com", "b", "c")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    (tmp_path / "urls.txt").write_text("https://example.com/b\n\nhttps://example.com/mine\n" * 2)
    plain, other, sites = [
        machine.run(*shlex.split(command.replace("urls.txt", str(tmp_path / "urls.txt"))))
        for command in COMMANDS
    ]
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.splitlines() == ["+ https://example.com/a", "- https://example.com/mine"]
    assert other.stdout == "https://example.com/mine\n"
    assert sites.stdout.splitlines() == [
        "+ https://example.com/a",
        "- https://staging.example.com/c",
    ]
    assert "In both: 1." in sites.stderr


async def test_the_history_of_a_url_is_printed(
    database: Database, database_url: str, tmp_path: Path
):
    await add_site("example.com", "a")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    result = machine.run("urls", "example.com", "--history", "https://example.com/a")
    assert result.returncode == 0, result.stderr
    assert "first seen  https://example.com/sitemap.xml" in result.stdout
    for option in ("--json", "--format=json"):
        shown = machine.run("urls", "example.com", "--history", "https://example.com/a", option)
        assert [entry["url"] for entry in json.loads(shown.stdout)["entries"]] == [
            "https://example.com/a"
        ]


async def test_options_that_a_history_would_ignore_are_refused(
    database: Database, database_url: str, tmp_path: Path
):
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    history = ("urls", "example.com", "--history", "https://example.com/a")
    result = machine.run(*history, "--contains", "a", "--format", "csv", "--all")
    assert result.returncode == 2
    message = "These do not apply to --history: --contains, --all, --format."
    assert result.stderr == f"siteatlas: input_invalid: {message}\n"


@pytest.mark.full
@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_a_url_without_a_history_is_not_found(
    database: Database, database_url: str, tmp_path: Path, options: tuple[str, ...]
):
    await add_site("example.com", "a")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    history = ("urls", "example.com", "--history")
    unknown = machine.run(*history, "https://example.com/b", *options)
    message = "siteatlas: not_found: This URL is not stored for this site."
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (1, "", f"{message}\n")
    path = machine.run(*history, "/a", *options)
    hint = f"{message} Write the full URL, such as https://example.com/a\n"
    assert (path.returncode, path.stdout, path.stderr) == (1, "", hint)


@pytest.mark.full
async def test_a_url_is_not_called_unknown_before_all_sitemaps_were_examined(
    database: Database, database_url: str, tmp_path: Path
):
    url = "https://example.com/a?b=1&c=2"
    async with transaction() as session:
        domain = await add_domain(session)
        await add_sitemaps(session, domain, urls.MAX_EXAMINED)
        last = await add_sitemap(session, domain, "last.xml", id=UUID(int=2**128 - 1))
        await add_urls(session, last.id, [(url_hash(url), url)])
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    history = ("urls", "example.com", "--history", url)
    answer = machine.json(*history)
    assert (answer["items"], answer["entries"]) == ([], [])
    result = machine.run(*history)
    assert (result.returncode, result.stdout) == (0, "")
    message, command = result.stderr.strip().split("siteatlas ")
    assert message.startswith("Not all sitemaps were examined")
    assert answer["entries_cursor"] in command
    (entry,) = machine.json(*shlex.split(command))["items"]
    assert (entry["url"], entry["sitemap"]) == (url, "https://example.com/last.xml")


@pytest.mark.full
async def test_two_scans_or_a_list_are_compared_but_not_both(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        domain = await add_domain(session, baseline_scan_id=1)
        sitemap = await add_sitemap(session, domain)
        scans = [
            await add_scan(session, domain, await add_job(session, domain), published_seq=number)
            for number in (1, 2)
        ]
        url = "https://example.com/new"
        session.add(
            UrlChange(
                scan_id=scans[1].id,
                sitemap_id=sitemap.id,
                url_hash=url_hash(url),
                kind="added",
                url=url,
                after={},
            )
        )
        (await session.get_one(FeedHead, 1)).seq = 2
        first, last = (str(scan.id) for scan in scans)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    result = machine.run("compare", "example.com", "--from", first, "--to", last)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"+ {url}\n"
    assert "added: 1." in result.stderr
    unknown = machine.run("compare", "example.com", "--from", first, "--to", "999")
    assert unknown.returncode == 1
    assert "Scan 999 is not a published scan of this site." in unknown.stderr
    assert "siteatlas scans SITE" in unknown.stderr
    refused = machine.run("compare", "example.com", "--from", first)
    assert (refused.returncode, "both --from and --to" in refused.stderr) == (2, True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("./missing.txt", "missing.txt: No such file or directory"),
        ("missing.txt", "missing.txt: no stored site and no file has this name."),
        ("lists/missing", "lists/missing: no stored site and no file has this name."),
        ("not a site", "not a site: no stored site and no file has this name."),
        ("./folder", "./folder is a directory, not a file."),
        ("folder.d", "folder.d is a directory, not a file."),
    ],
)
async def test_a_list_that_does_not_exist_is_named(
    database: Database, database_url: str, tmp_path: Path, other: str, message: str
):
    await add_site("example.com", "a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.d").mkdir()
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    result = machine.run("compare", "example.com", other)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"siteatlas: input_invalid: {message}\n"


async def test_lines_that_are_no_urls_are_left_out_with_a_warning(
    database: Database, database_url: str, tmp_path: Path
):
    await add_site("example.com", "a")
    (tmp_path / "list").write_text("# mine\nhttps://example.com/a\n/b\n")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    result = machine.run("compare", "example.com", "list", "--show", "all")
    assert (result.returncode, result.stdout) == (0, "= https://example.com/a\n")
    warning, counts = result.stderr.splitlines()
    assert warning == "2 of 3 lines are not http(s) URLs; expected one URL per line."
    assert counts.endswith("Only in list: 0. In both: 1.")


async def test_a_list_without_any_url_is_refused(
    database: Database, database_url: str, tmp_path: Path
):
    await add_site("example.com", "a")
    (tmp_path / "list").write_text('{"url": "https://example.com/a"}\n' * 72)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    result = machine.run("compare", "example.com", "list")
    assert (result.returncode, result.stdout) == (2, "")
    assert "72 of 72 lines are not http(s) URLs" in result.stderr


@pytest.mark.parametrize("command", ["export example.com", "urls example.com --format csv"])
async def test_a_site_is_equal_to_its_own_csv(
    database: Database, database_url: str, tmp_path: Path, command: str
):
    await add_site("example.com", "a", "b?x=1,2", 'c"d')
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    (tmp_path / "list.csv").write_text(machine.run(*command.split()).stdout)
    result = machine.run("compare", "example.com", "list.csv")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "Only in example.com: 0. Only in list.csv: 0. In both: 3.\n"


async def test_a_list_can_come_from_a_pipe(database: Database, database_url: str, tmp_path: Path):
    await add_site("example.com", "a")
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    script = f"{COMMAND} compare example.com <(echo https://example.com/b)"
    result = machine.execute(["bash", "-c", script])
    assert result.stdout.splitlines() == ["+ https://example.com/a", "- https://example.com/b"]
