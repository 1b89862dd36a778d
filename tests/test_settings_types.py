"""Types of settings: what becomes of text and of TOML values, and what is refused."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from siteatlas.settings import (
    Choice,
    FilePath,
    Integer,
    Number,
    Secret,
    SecretText,
    SettingType,
    Text,
    address_rates,
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
        (Integer(1, 10), "many", "whole number"),
        (Integer(1, 10), "5.", "whole number"),
        (Integer(1, 10), "٣", "whole number"),
        (Integer(1, 10), "9" * 5000, "digits"),
        (Integer(1, 10), 5.5, "whole number"),
        (Integer(1, 10), float("inf"), "finite number"),
        (Integer(1, 10), [5], "whole number"),
        (Integer(1, 10), 0, "1 or more"),
        (Integer(1, 10), "11", "10 or less"),
        (Number(0, 10), "nan", "10 or less"),
        (Number(0, 10), "-inf", "0 or more"),
        (Number(above=0), 0, "more than 0"),
        (Number(0, 10), "٣", "a number"),
        (Number(0, 10), date(2026, 1, 1), "a number"),
        (Text(), 5, "text"),
        (Text(4), "  ", "empty"),
        (Text(4), "fives", "4 characters"),
        (SecretText(), 5, "text"),
        (FilePath(), 5, "path"),
        (LEVEL, "INFO", "'debug', 'info' or 'error'"),
        (LEVEL, 5, "'debug', 'info' or 'error'"),
        (Text(check=plain_characters), "two\nlines", "ASCII"),
        (Text(check=address_rates), "192.0.2.0/24=20, 192.0.2.1", "'192.0.2.1' is not CIDR=N"),
        (Text(check=address_rates), "192.0.2.0/24=0", "not between 0 and 1000"),
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
