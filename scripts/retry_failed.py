"""Runs the tests that have just failed once more, one after the other.

Arguments: the exit status of pytest and, if it is not the usual one, its cache directory. For
`.ci/run`: some tests measure waiting times, and three processes on two cores can delay any of
them. A test that fails again, or more than a few failures at once, still fail the run. What passed
only the second time is named, so that it can be fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
USUAL_CACHE = PROJECT / ".pytest_cache"
TESTS_FAILED = 1
MAX_FAILURES = 3


def main() -> int:
    status, *caches = sys.argv[1:]
    return retry(int(status), Path(*caches) if caches else USUAL_CACHE)


def retry(status: int, cache: Path) -> int:
    """Run the tests that failed again, alone; the exit status of both runs together."""
    record = cache / "v" / "cache" / "lastfailed"
    failed = sorted(json.loads(record.read_text(encoding="utf-8"))) if record.exists() else []
    if status != TESTS_FAILED or not 0 < len(failed) <= MAX_FAILURES:
        return status
    print(
        "\nFailed while other tests were running; running again alone:",
        *failed,
        sep="\n  ",
        flush=True,
    )
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *failed]
    status = subprocess.run(command, cwd=PROJECT, check=False).returncode
    if status == 0:
        print("UNSTABLE: passed only when run alone:", *failed, sep="\n  ", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
