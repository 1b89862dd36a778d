"""Which targets of a scan are local files, and which are sites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from siteatlas.cli.scan.runner import local_path, may_be_site
from siteatlas.errors import InputError


def test_what_is_a_file_and_what_is_a_site(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sitemap.xml", "page.html", "a.json", "export"):
        (tmp_path / name).touch()
        assert local_path(name) == Path(name)
    (tmp_path / "example.com").mkdir()
    assert local_path("./anything") == Path("anything")
    assert local_path("/tmp/x.gz") == Path("/tmp/x.gz")
    for site in ("example.com", "https://example.com/sitemap.xml", "other.xml", "-", "", "a" * 300):
        assert local_path(site) is None


def test_only_names_that_could_be_sites_are_worth_a_word():
    assert may_be_site("example.com")
    for name in ("sitemap.xml", "urls.XML.GZ", "./example.com", "export"):
        assert not may_be_site(name)


@pytest.mark.parametrize("name", ["./folder.d", "folder", "/", "."])
def test_a_directory_is_refused_with_a_message(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.d").mkdir()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=rf"^{re.escape(name)} .*\bdirectory\b"):
        local_path(name)
