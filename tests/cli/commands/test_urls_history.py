"""The history of a URL as people read it."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.url_lists import UrlHistoryView, UrlView
from siteatlas.cli.commands.urls import history_lines

OLD, NEW = "https://e/a.xml", "https://e/b.xml"


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def change(seq: int, kind: str, sitemap: str = NEW, **values: Any) -> ChangeView:
    """A change with only what matters spelled out."""
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(ChangeView))
    usual = {"seq": seq, "kind": kind, "sitemap": sitemap, "fields": []}
    return ChangeView(**blank | usual | values)


def entry(sitemap: str, first_seen_at: datetime, removed_at: datetime | None = None) -> UrlView:
    """A listing with only what matters spelled out."""
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(UrlView))
    values = {"sitemap": sitemap, "first_seen_at": first_seen_at, "removed_at": removed_at}
    return UrlView(**blank | values)


def test_everything_is_listed_newest_first():
    page = UrlHistoryView(
        [
            change(9, "removed", not_after=day(9)),
            change(5, "moved", previous_sitemap=OLD, not_after=day(5)),
            change(3, "changed", OLD),
        ],
        None,
        entries=[entry(OLD, day(1), day(5)), entry(NEW, day(5), day(9))],
        entries_cursor=None,
    )
    assert history_lines(page) == [
        f"2026-01-09 00:00:00Z  removed  {NEW}  (sequence number 9)",
        f"2026-01-05 00:00:00Z  moved  from {OLD} to {NEW}  (sequence number 5)",
        f"unknown  changed  {OLD}  (sequence number 3)",
        f"2026-01-05 00:00:00Z  first seen  {NEW}, removed 2026-01-09 00:00:00Z",
        f"2026-01-01 00:00:00Z  first seen  {OLD}, removed 2026-01-05 00:00:00Z",
    ]


def test_dates_are_those_that_were_listed():
    states: dict[str, Any] = {
        "before": {"lastmod": day(1), "lastmod_text": "2026-01-01"},
        "after": {"lastmod": day(2)},
    }
    page = UrlHistoryView([change(1, "changed", fields=["lastmod"], **states)], None, [], None)
    (line,) = history_lines(page)
    assert line.endswith("lastmod: 2026-01-01 -> 2026-01-02 00:00:00Z")
