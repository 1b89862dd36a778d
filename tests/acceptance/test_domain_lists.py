"""Lists of sites on the command line: added from a file, tagged, and filtered by tags."""

from __future__ import annotations

import pytest

from tests.fixtures.commands import Machine

LISTED = """url,interval,tags
one.example.com,12,"shop, EU"
no host,,
two.example.com,,shop
three.example.com,soon,
"""


@pytest.fixture(scope="module")
def imported(machine: Machine) -> str:
    path = machine.data_dir / "sites.csv"
    path.write_text(LISTED, encoding="utf-8")
    result = machine.run("domains", "add", "--file", str(path), "--tag", "imported")
    assert result.returncode == 1
    return result.stderr


def test_good_lines_are_added_and_bad_ones_reported_with_their_number(imported: str):
    assert "Watching 2 sites: 2 new, 0 known. 2 lines could not be used." in imported
    assert "sites.csv:3: no host" in imported
    assert "sites.csv:5: three.example.com" in imported


@pytest.mark.full
@pytest.mark.usefixtures("imported")
def test_sites_and_jobs_are_listed_by_tag(machine: Machine):
    domains = machine.json("domains", "list", "--tag", "EU")["items"]
    assert [(one["domain"], one["tags"]) for one in domains] == [
        ("one.example.com", ["eu", "imported", "shop"])
    ]
    assert domains[0]["scan_interval_hours"] == 12
    jobs = machine.json("jobs", "list", "--tag", "shop")["items"]
    assert {one["domain"] for one in jobs} == {"one.example.com", "two.example.com"}


@pytest.mark.usefixtures("imported")
def test_tags_are_set_and_removed(machine: Machine):
    assert machine.json("domains", "tag", "two.example.com", "B", "a")["tags"] == ["a", "b"]
    assert machine.json("domains", "tag", "two.example.com")["tags"] == []
    refused = machine.run("domains", "tag", "two.example.com", "a b")
    assert (refused.returncode, "A tag has 1 to 50" in refused.stderr) == (2, True)


def test_a_line_that_gives_a_site_too_many_tags_is_reported(machine: Machine):
    tags = [f"tag{number:02d}" for number in range(21)]
    path = machine.data_dir / "tags.csv"
    rows = [("full.example.com", tags[:20]), ("fine.example.com", []), ("full.example.com", tags)]
    lines = [f'{site},"{", ".join(given[-20:])}"' for site, given in rows]
    path.write_text("\n".join(["url,tags", *lines]), encoding="utf-8")
    result = machine.run("domains", "add", "--file", str(path))
    assert result.returncode == 1
    assert "tags.csv:2: full.example.com" in result.stderr
    assert "Watching 1 site: 1 new, 0 known. 1 line could not be used." in result.stderr


@pytest.mark.full
def test_a_site_and_a_tag_exclude_each_other(machine: Machine):
    for command in ("urls", "changes", "export"):
        refused = machine.run(command, "example.com", "--tag", "shop")
        assert (refused.returncode, "either SITE or --tag" in refused.stderr) == (2, True)


def test_a_file_and_sites_exclude_each_other(machine: Machine):
    refused = machine.run("domains", "add", "example.com", "--file", "sites.txt")
    assert (refused.returncode, "--file cannot be combined" in refused.stderr) == (2, True)
