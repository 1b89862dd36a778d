"""The errors about an unavailable database."""

from __future__ import annotations

import errno

import pytest

from siteatlas.errors import DatabaseRefused, DatabaseUnavailable
from siteatlas.storage.engine import located_faults, server_of

URL = "postgresql://me:secret@db.example:6432/sites"


def unavailable(cause: Exception | None) -> DatabaseUnavailable:
    error = DatabaseUnavailable()
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (TimeoutError(), "time"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (RuntimeError("the database system is starting up"), "the database system is starting up"),
    ],
)
def test_the_place_and_the_reason_are_named_and_the_password_is_not(cause, reason: str):
    with pytest.raises(DatabaseUnavailable) as raised, located_faults(URL):
        raise unavailable(cause)
    place, why = raised.value.message.split(": ")
    assert "db.example:6432" in place
    assert reason in why
    assert "secret" not in raised.value.message


def test_an_error_that_says_more_is_left_alone():
    with pytest.raises(DatabaseRefused), located_faults(URL):
        raise DatabaseRefused


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("postgresql://u:p@h/d", "h:5432"),
        ("postgresql://u@/d?host=/run/pg&port=5433", "/run/pg:5433"),
        ("postgresql:///d", "localhost:5432"),
    ],
)
def test_a_server_is_named_by_host_and_port(url: str, server: str):
    assert server_of(url) == server
