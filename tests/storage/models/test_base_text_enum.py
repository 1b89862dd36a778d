"""Enumerations in text columns: what is stored, what is read, and what is refused."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import asyncpg

from siteatlas.storage.models import Job, JobStatus
from siteatlas.storage.models.base import TextEnum

DIALECT = asyncpg.dialect()
STATUS = TextEnum(JobStatus)


def test_a_member_is_stored_as_its_text_and_read_as_a_member():
    stored = STATUS.process_bind_param(JobStatus.FAILED, DIALECT)
    assert stored == "failed"
    assert type(stored) is str
    assert STATUS.process_result_value(stored, DIALECT) is JobStatus.FAILED


def test_null_stays_null():
    assert STATUS.process_bind_param(None, DIALECT) is None
    assert STATUS.process_result_value(None, DIALECT) is None


def test_a_text_that_is_not_a_member_is_refused_before_it_is_sent():
    with pytest.raises(ValueError, match="'finished' is not a valid JobStatus"):
        STATUS.process_bind_param("finished", DIALECT)  # type: ignore[arg-type]


def test_a_text_that_is_not_a_member_is_read_as_it_is_and_equals_no_member():
    value = STATUS.process_result_value("finished", DIALECT)
    assert value is not None
    assert (str(value), value.value, value.name) == ("finished", "finished", "finished")
    assert isinstance(value, JobStatus)
    assert value not in list(JobStatus)


def test_a_comparison_sends_text():
    statement = select(Job.id).where(Job.status == JobStatus.PENDING)
    compiled = statement.compile(dialect=DIALECT)
    text_column = select(Job.id).where(Job.job_type == "pending").compile(dialect=DIALECT)
    assert str(compiled).replace("status", "job_type") == str(text_column)


def test_a_job_as_a_dictionary_has_plain_text():
    status = Job(status=JobStatus.PENDING).to_dict()["status"]
    assert (type(status), status) == (str, "pending")
