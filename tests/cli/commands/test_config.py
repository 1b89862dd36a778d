"""`config show`: every value, its environment name and its origin, without secrets."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from siteatlas.cli.commands.config import settings_shown
from siteatlas.cli.main import app
from siteatlas.errors import ConfigurationError
from siteatlas.settings import DECLARATIONS, load_settings, masked_url


@pytest.fixture
def shown(monkeypatch, tmp_path):
    (tmp_path / "siteatlas.toml").write_text("concurrency = 7\n")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:very@secret@db.example/atlas")
    result = CliRunner().invoke(app, ["config", "show", "--json"])
    assert result.exit_code == 0
    return {item["setting"]: item for item in json.loads(result.stdout)["items"]}


def test_every_setting_is_shown(shown):
    assert set(shown) == set(DECLARATIONS)


def test_the_origin_of_each_value_is_shown(shown):
    assert shown["concurrency"]["value"] == 7
    assert shown["concurrency"]["origin"] == "file siteatlas.toml"
    assert shown["database_url"]["origin"] == "environment DATABASE_URL"
    assert shown["log_format"]["origin"] == "default"
    assert shown["data_dir"]["environment"] == "SITEATLAS_DATA_DIR"


def test_the_password_of_the_database_is_hidden(shown):
    assert shown["database_url"]["value"] == "postgresql://me:***@db.example/atlas"


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://me:p/a?s@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db/x?user=me&password=p", "postgresql://db/x?user=me&password=***"),
    ],
)
def test_a_password_is_hidden_wherever_it_appears(url: str, safe: str):
    assert masked_url(url) == safe


def test_a_wrong_value_is_named_with_its_origin(monkeypatch):
    monkeypatch.setenv("SITEATLAS_PORT", "99999")
    result = CliRunner().invoke(app, ["config", "show"])
    assert result.exit_code == 2
    assert "SITEATLAS_PORT (from environment SITEATLAS_PORT)" in result.stderr


@pytest.mark.parametrize("credentials", ["me:secret", "key:", "key", "me:se@cret"])
def test_the_password_of_a_proxy_is_hidden(credentials: str):
    environment = {"SITEATLAS_PROXY": f"http://{credentials}@proxy.example.net:3128"}
    shown = {line.setting: line.value for line in settings_shown(load_settings({}, environment))}
    assert shown["proxy"] == "http://***@proxy.example.net:3128"


@pytest.mark.parametrize(
    "servers", ["dns.example.com", "192.0.2.53:x", "192.0.2", "[::x]", "192.0.2.53:70000"]
)
def test_a_name_server_is_given_by_its_address(servers: str):
    with pytest.raises(ConfigurationError, match="SITEATLAS_DNS_SERVERS"):
        load_settings({"dns_servers": servers}, environment={})


def test_name_servers_are_separated_by_commas():
    given = "192.0.2.53, 192.0.2.54:5353,[2001:db8::1],[2001:db8::2]:53"
    settings = load_settings({"dns_servers": given}, environment={}).settings
    assert settings.name_servers == (
        *("192.0.2.53", "192.0.2.54:5353"),
        *("[2001:db8::1]", "[2001:db8::2]:53"),
    )
