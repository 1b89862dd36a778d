"""Logging: nothing before it is configured, nothing below the level, and what a line says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import logging
from siteatlas.logs import configure_logging, get_logger, job_context

log = get_logger("net")
log.info("before_configuration")
configure_logging("warning", "json")
log.info("below_the_level")
log.debug("far_below_the_level")
{then}
"""


def run_logging(then: str) -> list[dict[str, object]]:
    """The log lines of the program, which prints nothing else."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(then=then)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == ""
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.mark.slow
def test_lines_before_the_configuration_and_below_the_level_are_not_written():
    assert run_logging("") == []


@pytest.mark.slow
def test_the_first_line_at_the_level_is_written_in_full():
    (line,) = run_logging('log.warning("too_slow", url="https://a.example/?token=x")')
    assert (line["event"], line["level"], line["logger"]) == ("too_slow", "warning", "net")
    assert line["url"] == "https://a.example/?token=***"
    assert "timestamp" in line


@pytest.mark.slow
def test_a_line_of_a_library_is_written_in_the_same_form():
    (line,) = run_logging('logging.getLogger("some.library").error("it failed")')
    assert (line["event"], line["level"], line["logger"]) == ("it failed", "error", "some.library")


@pytest.mark.slow
def test_a_traceback_and_the_values_of_a_job_are_part_of_the_line():
    then = (
        'with job_context(job_id="7"):\n'
        "    try:\n        1 / 0\n"
        '    except ZeroDivisionError:\n        log.exception("crashed")'
    )
    (line,) = run_logging(then)
    assert (line["event"], line["level"], line["job_id"]) == ("crashed", "error", "7")
    assert "ZeroDivisionError" in str(line["exception"])


@pytest.mark.slow
def test_a_program_that_configured_structlog_itself_gets_our_events():
    program = (
        "import structlog\n"
        "structlog.configure(processors=[structlog.processors.JSONRenderer()])\n"
        "from siteatlas.logs import get_logger\n"
        'get_logger("net").info("seen", n=1)'
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == {"event": "seen", "n": 1}


@pytest.mark.slow
def test_warnings_reach_a_program_that_only_configures_the_standard_library():
    program = (
        "import logging\n"
        "logging.basicConfig(format='%(levelname)s %(name)s %(message)s')\n"
        "from siteatlas.logs import get_logger, job_context\n"
        "log = get_logger('processor')\n"
        "log.info('unseen')\n"
        "with job_context(domain='a.example'):\n"
        "    log.warning('job_not_found', job_id='7')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception('crashed')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    warning, error, *trace = result.stderr.splitlines()
    assert warning == "WARNING siteatlas.processor job_not_found domain=a.example job_id=7"
    assert error == "ERROR siteatlas.processor crashed"
    assert trace[-1] == "ZeroDivisionError: division by zero"
    assert result.stdout == ""
