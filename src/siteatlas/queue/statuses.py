"""The accepted names of a job's status, and the stored one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from siteatlas.errors import InputError
from siteatlas.storage.models import JobStatus

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

STATUS_ALIASES = {"complete": JobStatus.COMPLETED, "error": JobStatus.FAILED}
FINAL_STATUSES = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
UNPUBLISHED = (JobStatus.FAILED, JobStatus.CANCELLED)
ACTIVE_STATUSES = (JobStatus.PENDING, JobStatus.PROCESSING)


def parse_status(word: str) -> JobStatus:
    """Accept the stored words and the older ones, `complete` and `error`."""
    return parse_choice(word, JobStatus, "status", STATUS_ALIASES)


def parse_choice(
    typed: str, known: type[ChoiceT], what: str, aliases: Mapping[str, str] | None = None
) -> ChoiceT:
    """The member of `known` that was typed, in upper or lower case, or as one of the `aliases`.

    InputError names `what` was wanted, and all words that would do.
    """
    older = aliases or {}
    word = typed.strip().lower()
    try:
        return known(older.get(word, word))
    except ValueError as error:
        words = ", ".join([*known, *older])
        raise InputError(f"There is no {what} {typed!r}. Known: {words}.") from error
