"""Files with lists of sites: plain or CSV, and the lines that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from siteatlas.cli.commands.domains import SiteFile, read_site_file
from siteatlas.errors import InputError
from siteatlas.net.egress import EgressPolicy


def read(tmp_path: Path, content: str | bytes, *, tags: tuple[str, ...] = ()) -> SiteFile:
    path = tmp_path / "sites.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_site_file(path, EgressPolicy(), 24.0, tags)


def summary(found: SiteFile) -> list[tuple[str, float | None, tuple[str, ...]]]:
    return [(site.address.domain, site.scan_interval_hours, site.tags) for site in found.sites]


def test_a_plain_list_has_one_site_per_line(tmp_path: Path):
    text = "\ufeff# customers\nexample.com\n\n  https://www.example.org/ # second\r\n"
    found = read(tmp_path, text, tags=("all",))
    assert summary(found) == [("example.com", 24.0, ("all",)), ("example.org", 24.0, ("all",))]
    assert found.unusable == []


def test_csv_has_intervals_and_tags(tmp_path: Path):
    text = (
        "Tags,URL,Interval,Note\n"
        '"shop, EU",example.com,12,first\n'
        ",example.org,,\n"
        "a;b c,example.net,0.5\n"
    )
    assert summary(read(tmp_path, text, tags=("all",))) == [
        ("example.com", 12.0, ("all", "eu", "shop")),
        ("example.org", 24.0, ("all",)),
        ("example.net", 0.5, ("a", "all", "b", "c")),
    ]


def test_each_bad_line_is_reported_with_its_number(tmp_path: Path):
    text = (
        "url,interval,tags\n"
        "example.com,12,\n"
        "no host,12,\n"
        "\n"
        "example.org,often,\n"
        "example.net,nan,\n"
        "example.edu,1,a!b\n"
        "10.0.0.1,1,\n"
        ",1,\n"
    )
    found = read(tmp_path, text)
    assert [site.address.domain for site in found.sites] == ["example.com"]
    assert [(line.line, line.error.code) for line in found.unusable] == [
        (3, "address_invalid"),
        (5, "input_invalid"),
        (6, "input_invalid"),
        (7, "tag_invalid"),
        (8, "egress_denied"),
        (9, "address_empty"),
    ]


@pytest.mark.parametrize("content", ["", "\n\n# nothing\n", "url,tags\n"])
def test_an_empty_list_has_no_sites(tmp_path: Path, content: str):
    found = read(tmp_path, content)
    assert (found.sites, found.unusable) == ([], [])


def test_bytes_that_are_no_text_are_reported(tmp_path: Path):
    found = read(tmp_path, b"example.com\n\xff\xfe\x00.com\n")
    assert [site.address.domain for site in found.sites] == ["example.com"]
    assert [line.line for line in found.unusable] == [2]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        read_site_file(tmp_path / "none.txt", EgressPolicy(), None, ())
