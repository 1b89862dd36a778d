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
        ((".",), 2, "address_invalid"),
        (("/",), 2, "cannot be read"),
        (("example.com", "--since", "yesterday-ish"), 2, "a date such as"),
        (("example.com", "--format", "yaml"), 2, "yaml"),
        (("example.com", "--max-urls", "0"), 2, "--max-urls"),
        (("example.com", "--rate", "0"), 2, "--rate"),
        (("example.com", "--rate", "nan"), 2, "--rate"),
        (("example.com", "--allow", "everything"), 2, "everything"),
        (("example.com", "--header", "no colon"), 2, "Name: value"),
        (("./sitemap.xml", "-o", "missing/folder/x"), 2, "cannot be"),
    ],
)
def test_nonsense_is_refused_in_words(arguments: tuple[str, ...], code: int, words: str):
    result = CliRunner().invoke(app, ["scan", *arguments])
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
