"""Which entries of a scan are wanted."""

from __future__ import annotations

from datetime import UTC, datetime

from siteatlas.cli.scan.output import EntryFilter
from siteatlas.scanner.events import EntryColumns

OLD, NEW = datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = EntryColumns(
    ["https://a.example/blog/1", "https://a.example/blog/2.pdf", "https://a.example/shop"],
    [OLD, NEW, None],
    ["daily", None, "weekly"],
    [0.1, 0.2, 0.3],
    [None, {"images": []}, None],
)


def urls_with(wanted: EntryFilter) -> list[str]:
    return [url.removeprefix("https://a.example") for url in wanted.apply(COLUMNS).urls]


def test_without_wishes_everything_passes_untouched():
    wanted = EntryFilter.of(None, [], [])
    assert wanted.keeps_all
    assert wanted.apply(COLUMNS) is COLUMNS


def test_since_takes_the_day_itself_and_counts_what_has_no_date():
    wanted = EntryFilter.of(NEW, [], [])
    assert urls_with(wanted) == ["/blog/2.pdf"]
    assert (wanted.kept, wanted.left_out, wanted.undated) == (1, 2, 1)


def test_a_pattern_is_for_the_whole_url():
    assert urls_with(EntryFilter.of(None, ["*/blog/*"], [])) == ["/blog/1", "/blog/2.pdf"]
    assert urls_with(EntryFilter.of(None, ["blog"], [])) == []


def test_one_of_several_patterns_is_enough():
    assert urls_with(EntryFilter.of(None, ["*/shop", "*.pdf"], [])) == ["/blog/2.pdf", "/shop"]


def test_what_is_excluded_is_out_even_if_it_is_included():
    assert urls_with(EntryFilter.of(None, ["*/blog/*"], ["*.pdf"])) == ["/blog/1"]


def test_all_columns_stay_together():
    kept = EntryFilter.of(None, ["*.pdf"], []).apply(COLUMNS)
    assert (kept.lastmods, kept.changefreqs, kept.priorities) == ([NEW], [None], [0.2])
    assert kept.extras == [{"images": []}]
