"""Types of settings: what becomes of text and of TOML values, and what is refused."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from siteatlas.setting_types import (
    Choice,
    FilePath,
    Integer,
    Number,
    Secret,
    SecretText,
    SettingType,
    Text,
    name_server_list,
    plain_characters,
)

LEVEL = Choice("debug", "info", "error")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Integer(1, 2000), " 5 ", 5),
        (Integer(1, 2000), "1_000", 1000),
        (Integer(1, 2000), "5.00", 5),
        (Integer(-9, 9), "-5", -5),
        (Integer(1, 2000), 5.0, 5),
        (Number(0, 10), " 0.5 ", 0.5),
        (Number(0, 10), 3, 3.0),
        (Number(above=0, greatest=10), "1e-3", 0.001),
        (Text(), "  two words ", "two words"),
        (Text(4), "four", "four"),
        (SecretText(), " postgresql://a:b@c/d ", Secret("postgresql://a:b@c/d")),
        (FilePath(), " /var/lib/x ", Path("/var/lib/x")),
        (LEVEL, "info", "info"),
    ],
)
def test_a_value_is_converted(kind: SettingType, value: object, expected: object):
    converted = kind.convert(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Integer(1, 10), "many", "unable to parse string as an integer"),
        (Integer(1, 10), "5.", "unable to parse string as an integer"),
        (Integer(1, 10), "٣", "unable to parse string as an integer"),
        (Integer(1, 10), "9" * 5000, "exceeded maximum size"),
        (Integer(1, 10), 5.5, "fractional part"),
        (Integer(1, 10), float("inf"), "finite number"),
        (Integer(1, 10), [5], "valid integer"),
        (Integer(1, 10), 0, "greater than or equal to 1"),
        (Integer(1, 10), "11", "less than or equal to 10"),
        (Number(0, 10), "nan", "less than or equal to 10"),
        (Number(0, 10), "-inf", "greater than or equal to 0"),
        (Number(above=0), 0, "greater than 0"),
        (Number(0, 10), "٣", "unable to parse string as a number"),
        (Number(0, 10), date(2026, 1, 1), "valid number"),
        (Text(), 5, "valid string"),
        (Text(4), "  ", "at least 1 character"),
        (Text(4), "fives", "at most 4 characters"),
        (SecretText(), 5, "valid string"),
        (FilePath(), 5, "valid path"),
        (LEVEL, "INFO", "'debug', 'info' or 'error'"),
        (LEVEL, 5, "'debug', 'info' or 'error'"),
        (Text(check=plain_characters), "two\nlines", "Only ASCII"),
        (Text(check=name_server_list), "192.0.2.53, dns.example", "'dns.example'"),
        (Text(check=name_server_list), "192.0.2.53:70000", "192.0.2.53:5353"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_is_expected(
    kind: SettingType, value: object, reason: str
):
    with pytest.raises(ValueError, match=re.escape(reason)):
        kind.convert(value)


def test_a_secret_is_not_shown_by_accident():
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.get_secret_value() == "hunter2"
    assert len({secret, Secret("hunter2"), Secret("other")}) == 2
