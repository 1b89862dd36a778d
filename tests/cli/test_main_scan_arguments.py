"""Arguments that `siteatlas scan` cannot use are refused before anything is requested."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from siteatlas.cli.main import app


def refusal(*arguments: str) -> str:
    """What a scan says that is refused before it starts."""
    result = CliRunner().invoke(app, ["scan", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("site", "code", "fact"),
    [
        ("", "address_empty", "example.com"),
        ("http://user:x@example.com", "address_credentials", "password"),
        ("ftp://example.com", "address_scheme", "https"),
        ("not a host", "address_invalid", "not a host: "),
        ("\x1b[31m.example", "address_invalid", "\\x1b[31m.example: "),
        ("./missing.xml", "input_invalid", "./missing.xml: "),
        (".", "input_invalid", ".: "),
        ("/", "input_invalid", "/: "),
        ("example.com:3000", "egress_denied", "80, 443, 8080, 8443"),
        ("printer.lan", "egress_denied", ".lan "),
    ],
)
def test_a_site_that_cannot_be_scanned_is_refused_with_its_code(site: str, code: str, fact: str):
    said = refusal(site)
    assert said.startswith(f"siteatlas: {code}: ")
    assert fact in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("a.example", "--json", "--format", "urls"), ["input_invalid", "--json", "--format urls"]),
        (("a.example", "--only"), ["input_invalid", "a.example", "--only"]),
        (("-", "a.example"), ["input_invalid: - ", "stdin"]),
        (("./sitemap.xml", "-o", "missing/folder/x"), ["input_invalid", "missing/folder/x"]),
        (("example.com", "--allow", "*.com"), ["configuration_invalid", "'*.com'"]),
        (("example.com", "--header", "no colon"), ["configuration_invalid", "--header", "Name: "]),
        (("a.example", "--format", "xml"), ["--format", "'xml'", "'urls'"]),
        (("example.com", "--since", "yesterday-ish"), ["--since", "2026-01-31"]),
        (("example.com", "--max-urls", "0"), ["--max-urls"]),
        (("example.com", "--rate", "0"), ["--rate"]),
        (("example.com", "--rate", "nan"), ["--rate"]),
    ],
)
def test_an_option_that_cannot_be_used_is_named(arguments: tuple[str, ...], named: list[str]):
    said = refusal(*arguments)
    assert [fact for fact in named if fact not in said] == []


@pytest.mark.parametrize(
    ("site", "entry"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("http://[::1]/x", "'[::1]'"),
        ("example.com:3000", "example.com:3000"),
        ("printer.lan", "printer.lan"),
        ("foo", "foo"),
    ],
)
def test_an_address_that_can_be_allowed_comes_with_the_option_that_does_so(site: str, entry: str):
    denied, advice = refusal(site).splitlines()
    assert denied.startswith(f"siteatlas: egress_denied: {site}: ")
    assert advice.endswith(f" --allow {entry}")


@pytest.mark.parametrize(
    "site", ["169.254.169.254", "[::ffff:10.0.0.1]", "https://nosuchhost.invalid"]
)
def test_no_way_is_offered_to_what_never_opens(site: str):
    (denied,) = refusal(site).splitlines()
    assert denied.startswith(f"siteatlas: egress_denied: {site}: ")
    assert "--allow" not in denied


@pytest.mark.parametrize("site", ["foo", "foo/bar.xml", "not a host"])
def test_a_name_that_could_have_been_a_file_was_looked_for(site: str):
    assert " no file " in refusal(site)


@pytest.mark.parametrize("site", ["127.0.0.1:1", "http://foo", "foo:80", "169.254.169.254"])
def test_what_cannot_be_a_file_is_not_looked_for(site: str):
    assert " file " not in refusal(site)


def test_a_proxy_that_is_none_is_refused_without_its_secret(monkeypatch):
    monkeypatch.setenv("SITEATLAS_PROXY", "socks5://me:secret@proxy:1080")
    result = CliRunner().invoke(app, ["scan", "example.com"])
    assert result.exit_code == 2
    assert result.stderr.startswith("siteatlas: configuration_invalid: SITEATLAS_PROXY ")
    assert "secret" not in result.stderr
