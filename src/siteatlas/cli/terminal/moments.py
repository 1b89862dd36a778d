"""Moments as users type them: `2h`, `3d`, a date, a time, or a number of the change feed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_AGE = re.compile(r"(\d{1,6})\s*(s|min|m|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d\S*)?", re.ASCII)
TIME_FORMS = "90s, 30min, 2h, 3d, 2026-01-31 or 2026-01-31T12:00"
FORMS = "90s, 30min, 2h, 3d, 2026-01-31, 2026-01-31T12:00, or a sequence number of the feed"


def typed_moment(text: str) -> datetime | int:
    """The value of an option that takes a moment or a number of the feed."""
    return parse_moment(text, datetime.now(UTC))


def parse_moment(text: str, now: datetime) -> datetime | int:
    """The moment that a user means, or a number of the feed; times without a zone are UTC."""
    return int(text) if _NUMBER.fullmatch(text) else parse_time(text, now, FORMS)


def parse_time(text: str, now: datetime, forms: str = TIME_FORMS) -> datetime:
    """The moment that a user means: an age, a date or a time, without a zone in UTC."""
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(_why_no_time(text, forms)) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _why_no_time(text: str, forms: str) -> str:
    """Why a text is no time: there is no such date, or its form is unknown."""
    if date := _DATE.fullmatch(text):
        return f"there is no such {'time' if date[1] else 'date'}: {text}."
    return f"'{text}' is none of these: {forms}."
