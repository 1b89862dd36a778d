"""Settings: which source wins, and what a value that cannot be used is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from siteatlas.errors import ConfigurationError
from siteatlas.settings import DECLARATIONS, environment_name, load_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "siteatlas.toml"
    path.write_text("concurrency = 3\nlease_seconds = 30\n", encoding="utf-8")
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file: Path):
    environment = {"SITEATLAS_CONCURRENCY": "5", "SITEATLAS_POOL_SIZE": "7"}
    loaded = load_settings({"pool_size": 9}, environment, file)
    settings = loaded.settings
    assert (settings.pool_size, settings.concurrency, settings.lease_seconds) == (9, 5, 30)
    assert loaded.origins["pool_size"] == "flag"
    assert loaded.origins["concurrency"] == "environment SITEATLAS_CONCURRENCY"
    assert loaded.origins["lease_seconds"] == f"file {file}"
    assert loaded.origins["max_attempts"] == "default"


def test_a_flag_that_was_not_given_and_a_blank_variable_count_as_absent(file: Path):
    loaded = load_settings({"concurrency": None}, {"SITEATLAS_CONCURRENCY": "  "}, file)
    assert loaded.settings.concurrency == 3


def test_every_setting_has_a_variable_of_its_own():
    names = [environment_name(field) for field in DECLARATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SITEATLAS_CONCURRENCY", "0"),
        ("SITEATLAS_CONCURRENCY", "many"),
        ("SITEATLAS_LEASE_SECONDS", "nan"),
        ("SITEATLAS_LOG_LEVEL", "loud"),
        ("SITEATLAS_USER_AGENT", "two\nlines"),
        ("SITEATLAS_DNS_SERVERS", "dns.example"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_origin(variable, value, file: Path):
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, {variable: value}, file)
    assert f"{variable} (from environment {variable})" in caught.value.message


def test_an_unknown_setting_in_the_file_is_named(file: Path):
    file.write_text("concurency = 3\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="concurency"):
        load_settings({}, {}, file)


@pytest.mark.parametrize("content", [b"concurrency =", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused_by_its_path(content: bytes, file: Path):
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"siteatlas\.toml"):
        load_settings({}, {}, file)


def test_a_file_that_was_named_must_exist(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        load_settings({}, {}, tmp_path / "none.toml")


def test_the_batch_size_limits_claims_only_when_somebody_chose_it(file: Path):
    assert load_settings({}, {}, file).settings.claim_limit is None
    chosen = load_settings({}, {"SITEMAP_SCHEDULER_BATCH_SIZE": "4"}, file)
    assert chosen.settings.claim_limit == 4
