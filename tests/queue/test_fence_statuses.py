"""The words for a job's status."""

from __future__ import annotations

import pytest

from siteatlas.errors import InputError
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    FINAL_STATUSES,
    STATUS_ALIASES,
    parse_status,
)
from siteatlas.storage.models import JobStatus


@pytest.mark.parametrize("status", JobStatus)
def test_every_stored_word_is_itself_in_any_case(status: JobStatus):
    assert parse_status(f" {status.value.upper()} ") is status


@pytest.mark.criterion("older-status-words")
def test_older_words_mean_the_stored_ones():
    assert {word: parse_status(word) for word in STATUS_ALIASES} == {
        "complete": JobStatus.COMPLETED,
        "error": JobStatus.FAILED,
    }


@pytest.mark.parametrize("word", ["", "banana", "complet", "completed,failed"])
def test_another_word_is_refused_with_those_that_are_known(word: str):
    with pytest.raises(InputError) as caught:
        parse_status(word)
    assert all(known in caught.value.message for known in [*JobStatus, *STATUS_ALIASES])


def test_every_status_is_either_active_or_final():
    assert sorted([*ACTIVE_STATUSES, *FINAL_STATUSES]) == sorted(JobStatus)
