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
    return parse_status_or_type(word, JobStatus, "status", STATUS_ALIASES)


def parse_status_or_type(
    text: str, known: type[ChoiceT], what: str, aliases: Mapping[str, str] | None = None
) -> ChoiceT:
    """Parse the status of a job or document, or a type, in any case or as one of the `aliases`.

    InputError says `what` is expected and lists the accepted words.
    """
    older = aliases or {}
    word = text.strip().lower()
    try:
        return known(older.get(word, word))
    except ValueError as error:
        words = ", ".join([*known, *older])
        raise InputError(f"There is no {what} {text!r}. Known: {words}.") from error
