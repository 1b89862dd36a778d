"""Moments as users type them: `2h`, `3d`, a date, a time, or a number of the change feed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_AGE = re.compile(r"(\d{1,6})\s*(s|min|m|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
FORMS = "2h, 3d, 2026-01-31, 2026-01-31T12:00, or a number of the feed"


def parse_moment(text: str, now: datetime) -> datetime | int:
    """The moment that a user means, or a number of the feed; times without a zone are UTC."""
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"'{text}' is none of these: {FORMS}.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
