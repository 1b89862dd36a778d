"""Words that people type and words for numbers."""

from __future__ import annotations

import pytest

from siteatlas.cli.terminal.options import alternatives, complete_choice
from siteatlas.cli.terminal.output import counted
from siteatlas.storage.models import JobStatus


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 URLs"), (1, "1 URL"), (2, "2 URLs"), (1200, "1,200 URLs")]
)
def test_a_count_agrees_with_its_noun(number: int, words: str):
    assert counted(number, "URL") == words


def test_the_shell_completes_the_words_of_a_status():
    assert complete_choice(JobStatus)("P") == ["pending", "processing"]
    assert complete_choice(JobStatus)("x") == []


def test_the_help_names_every_word():
    assert alternatives(JobStatus) == "pending|processing|completed|failed|cancelled"
