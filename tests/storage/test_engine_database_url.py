"""DATABASE_URL as people write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from siteatlas.errors import ConfigurationError
from siteatlas.storage.engine import DRIVER, parse_database_url, tls_address


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", DRIVER])
def test_every_scheme_becomes_that_of_the_driver(scheme: str):
    url = parse_database_url(f"{scheme}://u:p%40ss@db.example:6432/atlas")
    assert (url.drivername, url.username, url.password) == (DRIVER, "u", "p@ss")
    assert (url.host, url.port, url.database) == ("db.example", 6432, "atlas")


def test_sslmode_becomes_the_option_of_the_driver_and_others_are_dropped():
    url = parse_database_url("postgres://h/d?sslmode=require&application_name=x&pgbouncer=true")
    assert dict(url.query) == {"ssl": "require"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "atlas",
        "mysql://h/d",
        "postgres://h",
        "postgres://h:port/d",
        "postgres://h:0/d",
        "postgres://h:65536/d",
        "postgres://h/d?sslmode=maybe",
        "postgres://h/d?port=1,x",
        f"postgres://{'a' * 70}/d",
    ],
)
def test_what_the_driver_could_not_use_is_refused_by_name(text: str):
    with pytest.raises(ConfigurationError) as caught:
        parse_database_url(text)
    assert "DATABASE_URL" in caught.value.message


@pytest.mark.parametrize("password", ["se@cret", "se@h/cret", "se@h:cret", "se@h:1/cret"])
def test_a_password_with_a_bare_at_sign_is_refused_and_not_shown(password: str):
    with pytest.raises(ConfigurationError) as caught:
        parse_database_url(f"postgres://u:{password}@h/d")
    assert "%40" in caught.value.message
    assert "cret" not in caught.value.message


def test_without_tls_options_there_is_no_tls_address():
    assert tls_address("postgres://h/d?sslmode=require") is None


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_tls_file_that_is_missing_is_named_with_its_path(tmp_path: Path, name: str):
    missing = tmp_path / "none.pem"
    with pytest.raises(ConfigurationError) as caught:
        tls_address(f"postgres://h/d?{name}={missing}")
    assert name in caught.value.message
    assert str(missing) in caught.value.message


def test_a_file_without_certificates_is_refused(tmp_path: Path):
    file = tmp_path / "empty.pem"
    file.write_text("nothing", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="sslrootcert"):
        tls_address(f"postgres://h/d?sslrootcert={file}")
