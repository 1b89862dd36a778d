"""Words that `siteatlas scan` cannot use are refused before anything is asked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from siteatlas.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("",), 2, "address_empty"),
        (("http://user:x@example.com",), 2, "address_credentials"),
        (("ftp://example.com",), 2, "address_scheme"),
        (("not a host",), 2, "address_invalid"),
        (("\x1b[31m.example",), 2, "address_invalid"),
        (("127.0.0.1:1",), 2, "egress_denied"),
        (("./missing.xml",), 2, "cannot be read"),
        ((".",), 2, "is a directory"),
        (("/",), 2, "is a directory"),
        (("foo",), 2, "a name without a dot is not public, and there is no file of this name here"),
        (("example.com:3000",), 2, "port 3000 is not one of the web ports"),
        (("10.0.0.1",), 2, "it is not a public address.\nIf this is your own site, allow it"),
        (("printer.lan",), 2, "names ending in .lan are not public.\nIf this is your own site"),
        (("a.example", "--json", "--format", "urls"), 2, "--json and --format urls"),
        (("a.example", "--format", "xml"), 2, "'--format': 'xml' is not one of"),
        (("a.example", "--only"), 2, "--only needs the address of a sitemap"),
        (
            ("-", "a.example"),
            2,
            "- reads all sites from stdin",
        ),
        (("foo/bar.xml",), 2, "and there is no file of this name here."),
        (("not a host",), 2, "and there is no file of this name here."),
        (("10.0.0.1",), 2, "allow it: --allow 10.0.0.1:443"),
        (("http://[::1]/x",), 2, "allow it: --allow [::1]:80"),
        (("example.com", "--since", "yesterday-ish"), 2, "--since"),
        (("example.com", "--format", "yaml"), 2, "yaml"),
        (("example.com", "--max-urls", "0"), 2, "--max-urls"),
        (("example.com", "--rate", "0"), 2, "--rate"),
        (("example.com", "--rate", "nan"), 2, "--rate"),
        (("example.com", "--allow", "everything"), 2, "--allow: 'everything'"),
        (("example.com", "--header", "no colon"), 2, "--header: A header"),
        (("./sitemap.xml", "-o", "missing/folder/x"), 2, "cannot be"),
    ],
)
def test_nonsense_is_refused_in_words(arguments: tuple[str, ...], code: int, words: str):
    result = CliRunner().invoke(app, ["scan", *arguments])
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("site", ["169.254.169.254", "[::ffff:10.0.0.1]"])
def test_no_way_is_offered_to_what_never_opens(site: str):
    result = CliRunner().invoke(app, ["scan", site])
    assert result.exit_code == 2
    words = f"{site}: This address may not be contacted: it cannot be allowed by any setting."
    assert result.stderr == f"siteatlas: egress_denied: {words}\n"


def test_no_way_is_offered_to_a_name_that_leads_nowhere():
    result = CliRunner().invoke(app, ["scan", "https://nosuchhost.invalid"])
    assert result.exit_code == 2
    assert result.stderr.endswith("names ending in .invalid are not public.\n")


@pytest.mark.parametrize("site", ["127.0.0.1:1", "http://foo", "foo:80", "169.254.169.254"])
def test_what_cannot_be_a_file_is_not_looked_for(site: str):
    assert "no file" not in CliRunner().invoke(app, ["scan", site]).stderr


def test_a_proxy_that_is_none_is_refused_without_its_secret(monkeypatch):
    monkeypatch.setenv("SITEATLAS_PROXY", "socks5://me:secret@proxy:1080")
    result = CliRunner().invoke(app, ["scan", "example.com"])
    assert result.exit_code == 2
    assert "SITEATLAS_PROXY (from environment SITEATLAS_PROXY) is invalid" in result.stderr
    assert "secret" not in result.stderr
