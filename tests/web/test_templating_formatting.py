"""Values as people read them on a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from siteatlas.web.templating import (
    code_spans,
    duration,
    exact,
    labelled_cells,
    number,
    plural,
    relative,
    signed,
    size,
    tone,
    url_parts,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1_234_567, "1\u2009234\u2009567"), (None, "–")]
)
def test_digits_of_a_number_are_in_groups_of_three(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(5, "+5"), (-1_200, "\u22121\u2009200"), (0, "±0")])
def test_a_difference_has_its_sign(value, text):
    assert signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (7_000_000, "7.0 MB"), (None, "–")],
)
def test_a_size_is_given_in_a_unit_that_fits(value, text):
    assert size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (4.26, "4.3 s"), (61, "1 min 1 s"), (3_720, "1 h 2 min"), (None, "–")],
)
def test_a_duration_is_given_in_units_that_fit(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (timedelta(seconds=-5), "5 seconds ago"),
        (timedelta(minutes=-1), "1 minute ago"),
        (timedelta(hours=3), "in 3 hours"),
        (timedelta(days=-45), "2 months ago"),
    ],
)
def test_a_time_is_shown_relative_to_now(delta, text):
    assert relative(NOW + delta, NOW) == text


def test_the_exact_time_is_in_utc():
    assert exact(NOW) == "2026-03-01 12:00:00 UTC"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://example.com/a?b=1", ("https://example.com", "/a?b=1")),
        ("https://example.com", ("https://example.com", "/")),
        ("HTTPS://Example.com/a", ("", "HTTPS://Example.com/a")),
    ],
)
def test_an_address_is_split_after_its_origin(url, parts):
    assert url_parts(url) == parts


def test_a_state_that_is_not_known_is_shown_as_it_is():
    assert tone("brand_new").word == "brand_new"
    assert tone(None).word == "not scanned yet"


def test_a_noun_agrees_with_its_count():
    assert (plural(1, "child", "children"), plural(2, "child", "children")) == (
        "1 child",
        "2 children",
    )


def test_what_is_between_backticks_is_shown_as_code_and_escaped():
    shown = code_spans("an `&` that is read as `&amp;`, <b>")
    assert shown == ("an <code>&amp;</code> that is read as <code>&amp;amp;</code>, &lt;b&gt;")


HEAD = (
    '<thead><tr><th scope="col"><input type="checkbox"></th><th scope="col">Site</th>'
    '<th scope="col"><a href="?">URLs <span aria-hidden="true">▾</span></a></th></tr></thead>'
)
CELLS = "<tr><td></td><td>a.example</td><td>7</td></tr>"


def test_cells_of_cards_have_the_names_of_their_columns():
    row_header = '<tr><td></td><th scope="row">b.example</th><td class="number">8</td></tr>'
    whole = '<tr><td colspan="3">Nothing.</td></tr>'
    page = labelled_cells(
        f'<table class="cards">{HEAD}<tbody>{CELLS}{row_header}{whole}</tbody></table>'
        f"<table>{HEAD}<tbody>{CELLS}</tbody></table>"
    )
    cards, other = page.split("</table><table>")
    assert '<td>a.example</td><td data-label="URLs">7</td>' in cards
    assert '<th scope="row">b.example</th><td data-label="URLs" class="number">8</td>' in cards
    assert whole in cards
    assert other == f"{HEAD}<tbody>{CELLS}</tbody></table>"
