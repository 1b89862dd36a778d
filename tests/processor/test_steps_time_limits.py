"""Limits of statements: the server stops a statement before the driver gives up on it."""

from __future__ import annotations

from siteatlas.processor.steps import STEP_SECONDS
from siteatlas.storage.engine import COMMAND_SECONDS


def test_no_statement_of_a_job_may_take_longer_than_the_driver_waits() -> None:
    assert STEP_SECONDS < COMMAND_SECONDS
