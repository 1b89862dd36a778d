"""`scripts/retry_failed.py`: tests that failed among others are run once more, alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = PROJECT / "scripts" / "retry_failed.py"

pytestmark = pytest.mark.slow


def run_again(cache: Path, failed: list[str], status: int = 1) -> subprocess.CompletedProcess[str]:
    record = cache / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps(dict.fromkeys(failed, True)), encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(status), str(cache)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def a_test(tmp_path: Path, body: str) -> str:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n", encoding="utf-8")
    return f"{tmp_path / 'test_it.py'}::test_it"


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    name = a_test(tmp_path, "assert True")
    done = run_again(tmp_path / "cache", [name])
    assert done.returncode == 0, done.stdout
    assert "UNSTABLE" in done.stdout
    assert name in done.stdout


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    assert run_again(tmp_path / "cache", [a_test(tmp_path, "assert False")]).returncode == 1


@pytest.mark.parametrize(("failures", "status"), [(0, 1), (4, 1), (1, 2)])
def test_many_failures_or_another_end_of_the_run_are_not_retried(
    tmp_path: Path, failures: int, status: int
) -> None:
    name = a_test(tmp_path, "assert True")
    done = run_again(tmp_path / "cache", [f"{name}-{n}" for n in range(failures)], status)
    assert (done.returncode, done.stdout) == (status, "")
