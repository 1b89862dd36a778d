"""Events of the change feed as people read them."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.robots import RobotsChange, RobotsText
from siteatlas.cli.terminal.filters import MOMENT_FORMS, parse_moment
from siteatlas.cli.terminal.lines import ChangeLines
from siteatlas.processor.publication import robots_event_data

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def event(kind: str, url: str | None = "https://example.com/a", **values: Any) -> ChangeView:
    """An event with only what matters spelled out."""
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(ChangeView))
    usual = {"id": "1", "seq": 1, "domain": "example.com", "scan_id": 9, "fields": []}
    return ChangeView(**blank | usual | {"kind": kind, "url": url} | values)


def robots_data(before: str, after: str) -> dict[str, Any]:
    """The data of an event that reports another robots.txt."""
    text = RobotsText("https://example.com", after, 200, truncated=False)
    return robots_event_data(RobotsChange(before, after, 200), text)


def lines(*events: ChangeView, width: int | None = None) -> list[str]:
    writer = ChangeLines(width)
    return [line.text for one in events for line in writer.of(one)]


def test_each_scan_has_one_heading():
    shown = lines(
        event("added", not_after=NOW), event("removed"), event("added", seq=2, scan_id=None)
    )
    assert shown == [
        "example.com, 2026-01-31 12:00:00Z, sequence number 1, scan 9",
        "  + https://example.com/a",
        "  - https://example.com/a",
        "",
        "example.com, sequence number 2",
        "  + https://example.com/a",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (event("removed", evidence="confirmed"), ["  - https://example.com/a  (confirmed)"]),
        (event("removed", evidence="complete"), ["  - https://example.com/a"]),
        (event("back"), ["  + https://example.com/a  (back)"]),
        (event("expired"), ["  - https://example.com/a  (expired)"]),
        (
            event("moved", sitemap="https://e/b.xml", previous_sitemap="https://e/a.xml"),
            [
                "  > https://example.com/a",
                "      from https://e/a.xml",
                "      to   https://e/b.xml",
            ],
        ),
        (
            event("duplicate_removed", sitemap="https://e/b.xml"),
            [
                "  = https://example.com/a  (still in another sitemap)",
                "      not in https://e/b.xml",
            ],
        ),
        (
            event(
                "changed",
                before={"lastmod": "2025-01-01T00:00:00Z", "lastmod_text": "2025-01-01"},
                after={"lastmod": "2025-01-02T10:00:00Z", "priority": 0.5},
                fields=["lastmod", "priority"],
            ),
            [
                "  ~ https://example.com/a",
                "      lastmod: 2025-01-01 -> 2025-01-02T10:00:00Z",
                "      priority: - -> 0.5",
            ],
        ),
        (
            event("sitemap_added", None, sitemap="https://e/b.xml"),
            ["  * sitemap_added https://e/b.xml"],
        ),
        (
            event("baseline", None, sitemap="https://e/b.xml", data={"url_count": 1_200}),
            ["  * baseline https://e/b.xml", "      first read: 1,200 URLs"],
        ),
        (
            event(
                "removals_held",
                None,
                data={
                    "count": 1,
                    "documents": [{"sitemap": "https://e/b.xml", "reason": "unread"}],
                    "more_documents": 3,
                },
            ),
            [
                "  ! removals_held",
                "      1 URL missing, but not proved to be removed",
                "      https://e/b.xml could list them, but was not read",
                "      and 3 more sitemaps",
            ],
        ),
        (
            event("origin_changed", None, data={"url": "https://e/", "lines": [1], "t": "a\nb"}),
            ["  * origin_changed", "      url: https://e/, lines: 1"],
        ),
        (
            event("robots_changed", None, data=robots_data("Disallow: /a", "Disallow: /b")),
            ["  * robots_changed", "      -Disallow: /a", "      +Disallow: /b"],
        ),
        (
            event("robots_changed", None, data={"diff": None, "http_status": 404}),
            [
                "  * robots_changed",
                "      HTTP status: - -> 404",
                "      see: siteatlas robots example.com --history",
            ],
        ),
        (event("of another version"), ["  ? https://example.com/a"]),
    ],
)
def test_each_kind_of_change_is_shown_by_its_sign(change: ChangeView, expected: list[str]):
    assert lines(change)[1:] == expected


def test_a_robots_file_that_changed_a_lot_is_shown_by_its_first_lines():
    many = "\n".join(f"Disallow: /{number}" for number in range(50))
    shown = lines(event("robots_changed", None, data=robots_data("", many)))[2:]
    assert shown[:-1] == [f"      +Disallow: /{number}" for number in range(6)]
    assert shown[-1] == "      more: siteatlas robots example.com --history"


def test_lines_fit_a_terminal():
    long = "https://example.com/" + "x" * 200
    changes = [event(kind, long, sitemap=long, previous_sitemap=long) for kind in ("moved", "back")]
    shown = lines(*changes, event("baseline", None, sitemap=long), width=80)
    assert max(map(len, shown)) == 80


def test_a_terminal_shows_relative_times():
    heading, _ = lines(event("added", not_after=datetime.now(UTC) - timedelta(hours=2)), width=80)
    assert "2 h ago" in heading


def test_a_terminal_that_follows_the_feed_shows_the_time_of_the_day():
    now = datetime.now(UTC)
    writer = ChangeLines(80, clock=True)
    today, earlier = (
        next(
            line.text for line in writer.of(event("added", seq=seq, not_after=moment)) if line.text
        )
        for seq, moment in enumerate([now, NOW])
    )
    assert today == f"example.com, {now:%H:%M:%S}Z, sequence number 0, scan 9"
    assert earlier == "example.com, 2026-01-31 12:00:00Z, sequence number 1, scan 9"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("30min", NOW - timedelta(minutes=30)),
        ("3d", NOW - timedelta(days=3)),
        ("1w", NOW - timedelta(days=7)),
        ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
        ("2026-01-30T10:00+02:00", datetime(2026, 1, 30, 8, tzinfo=UTC)),
        ("17", 17),
    ],
)
def test_moments_are_understood_as_people_type_them(text: str, expected: datetime | int):
    assert parse_moment(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-13-45", "there is no such date: 2026-13-45."),
        ("2026-01-31T25:00", "there is no such time: 2026-01-31T25:00."),
        ("tomorrow", f"'tomorrow' is none of these: {MOMENT_FORMS}."),
    ],
)
def test_a_date_that_does_not_exist_is_called_that(text: str, message: str):
    with pytest.raises(typer.BadParameter) as raised:
        parse_moment(text, NOW)
    assert raised.value.message == message


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "-3", "999999999999d", "999999w"])
def test_a_moment_that_is_not_understood_is_refused(text: str):
    with pytest.raises(typer.BadParameter):
        parse_moment(text, NOW)
