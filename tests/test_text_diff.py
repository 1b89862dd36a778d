"""The difference between two texts, line by line."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from siteatlas import text as text_diff
from siteatlas.text import MAX_SHOWN_LINES, line_diff
from tests.fixtures.timings import measured

lines = st.lists(st.sampled_from(["User-agent: *", "Disallow: /a", "Allow: /", ""]), max_size=12)


def test_equal_texts_have_no_difference():
    assert line_diff("a\nb", "a\nb\n") == ""


def test_the_changed_lines_are_shown_with_the_lines_around_them():
    before = "\n".join("abcdefghij")
    after = before.replace("e", "E").replace("g", "g\nh2")
    assert line_diff(before, after).splitlines() == [
        " b",
        " c",
        " d",
        "-e",
        "+E",
        " f",
        " g",
        "+h2",
        " h",
        " i",
        " j",
    ]


@given(lines, lines)
def test_the_old_and_the_new_lines_can_be_read_from_it(old: list[str], new: list[str]):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_diff, "CONTEXT_LINES", 100)
        shown = line_diff("\n".join([*old, "end"]), "\n".join([*new, "end"])).splitlines()
    assume(old != new)
    assert [line[1:] for line in shown if line[0] != "+"] == [*old, "end"]
    assert [line[1:] for line in shown if line[0] != "-"] == [*new, "end"]


def test_a_text_that_changed_everywhere_takes_little_time_and_space():
    before = "\n".join(f"Disallow: /{n}" for n in range(20_000))
    after = "\n".join(f"Disallow: /{n + 1}x" for n in range(20_000))
    start = time.process_time()
    shown = line_diff(before, after)
    measured(time.process_time() - start, 1)
    assert len(shown.splitlines()) == MAX_SHOWN_LINES + 1
