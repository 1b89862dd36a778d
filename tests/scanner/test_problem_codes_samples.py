"""Problems name the entries that have them: URL, value as listed, number of the entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.document import DuplicateUrls
from siteatlas.scanner.reading.entries import MAX_SAMPLES, Tally
from tests.fixtures.documents import index_of, read, urlset

PAGE = "https://a.example/"
AHEAD = f"{datetime.now(UTC) + timedelta(days=400):%Y-%m-%d}"
TOMORROW = f"{datetime.now(UTC) + timedelta(hours=20):%Y-%m-%dT%H:%M:%SZ}"


def entry(loc: str, **values: str) -> str:
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    return f"<url><loc>{loc}</loc>{fields}</url>"


def in_both_ways(*entries: str) -> dict[str, tuple[ProblemSample, ...]]:
    """The samples of a document; it is checked that the strict parser gives the same."""
    fast = read(urlset("".join(entries)))
    strict = read(urlset("<!-- off the fast path -->" + "".join(entries)))
    assert fast.reader.tally.kept_samples() == strict.reader.tally.kept_samples()
    assert fast.reader.tally.problems == strict.reader.tally.problems
    return fast.reader.tally.kept_samples()


def test_a_value_that_cannot_be_read_is_shown_with_its_page_and_entry():
    samples = in_both_ways(
        entry(PAGE + "1", lastmod="2025-12-28"),
        entry(PAGE + "2", lastmod="yesterday", priority="7"),
        entry(PAGE + "3", changefreq="often"),
    )
    assert samples == {
        "lastmod_invalid": (ProblemSample(PAGE + "2", "yesterday", 2),),
        "priority_invalid": (ProblemSample(PAGE + "2", "7", 2),),
        "changefreq_invalid": (ProblemSample(PAGE + "3", "often", 3),),
    }


def test_entries_are_counted_with_those_that_are_left_out():
    samples = in_both_ways(
        entry("ftp://a.example/1"),
        entry(PAGE + "2"),
        entry(PAGE + "3", lastmod="never"),
        entry(""),
    )
    assert samples["bad_url"] == (ProblemSample("ftp://a.example/1", None, 1),)
    assert samples["lastmod_invalid"] == (ProblemSample(PAGE + "3", "never", 3),)


def test_entries_are_numbered_over_all_pieces_of_a_document():
    good = [entry(f"{PAGE}{number}", lastmod="2025-12-28") for number in range(2_000)]
    samples = in_both_ways(*good, entry(PAGE + "x", lastmod="x"))
    assert samples["lastmod_invalid"] == (ProblemSample(PAGE + "x", "x", 2_001),)


def test_a_date_more_than_a_day_ahead_is_noted_and_kept():
    samples = in_both_ways(
        entry(PAGE + "1", lastmod=TOMORROW),
        entry(PAGE + "2", lastmod=AHEAD),
        entry(PAGE + "3", lastmod="2020-01-01"),
    )
    assert samples == {"lastmod_future": (ProblemSample(PAGE + "2", AHEAD, 2),)}


def test_a_column_of_one_date_in_the_future_is_noted_as_a_whole():
    document = read(urlset("".join(entry(f"{PAGE}{n}", lastmod=AHEAD) for n in range(50))))
    assert document.reader.tally.problems == {"lastmod_future": 50}
    assert len(document.reader.tally.kept_samples()["lastmod_future"]) == MAX_SAMPLES


def test_a_sample_is_kept_once():
    tally = Tally()
    for url in ("a", "a", "b", "a"):
        tally.note(ProblemCode.DUPLICATE_URL, url=url)
    assert tally.problems == {"duplicate_url": 4}
    assert tally.kept_samples()["duplicate_url"] == (
        ProblemSample("a", None, None),
        ProblemSample("b", None, None),
    )


def test_samples_are_few_and_short():
    entries = [entry(f"{PAGE}{n}", lastmod="x" * 5_000) for n in range(100)]
    document = read(urlset("".join(entries)))
    samples = document.reader.tally.kept_samples()["lastmod_invalid"]
    assert document.reader.tally.counts()["lastmod_invalid"] == 100
    assert len(samples) == MAX_SAMPLES
    assert {len(sample.value or "") for sample in samples} == {200}


def test_a_child_of_an_index_is_shown_with_its_number():
    samples = read(index_of([PAGE + "1.xml", "ftp://a.example/2.xml"])).reader.tally.kept_samples()
    assert samples == {"bad_url": (ProblemSample("ftp://a.example/2.xml", None, 2),)}


def test_the_text_around_a_repair_is_shown():
    samples = read(urlset(entry(PAGE + "?a=1&b=2"))).reader.tally.kept_samples()
    (sample,) = samples["bare_ampersand"]
    assert sample.value is not None
    assert "?a=1&b=2" in sample.value


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_url_that_is_listed_again_is_noted(size):
    urls = [f"{PAGE}{number}" for number in (1, 2, 1, 3, 2, 1)]
    tally = Tally()
    duplicates = DuplicateUrls(tally)
    for start in range(0, len(urls), size):
        duplicates.note_repeated(urls[start : start + size])
    assert tally.problems == {"duplicate_url": 3}
    shown = [sample.url for sample in tally.kept_samples()["duplicate_url"]]
    assert shown == [PAGE + "1", PAGE + "2"]
