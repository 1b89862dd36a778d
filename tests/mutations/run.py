"""Applies each mutation of `cases.py` to a copy of the project and asserts that its tests go red.

`make mutations` runs all of them; `make mutations ARGS=interval` those whose description has the
word. A mutation that no test notices, or that no longer fits the code, ends the run with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutations.cases import MUTATIONS
from tests.mutations.mutation import Mutation

PROJECT = Path(__file__).resolve().parent.parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "build", "dist", "results", "__pycache__", ".*_cache", ".hypothesis"
)
TESTS_PASSED, TESTS_FAILED = 0, 1
MAX_RUN_SECONDS = 600
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def run_tests(copy: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy against the code of the copy."""
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # files change faster than their time stamps
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MAX_RUN_SECONDS,
        check=False,
    )


def apply(copy: Path, mutation: Mutation) -> dict[Path, str]:
    """Change the copy; returns the text of the changed files as it was."""
    after = mutation.changed_files(copy / "src" / "siteatlas")
    before = {path: path.read_text(encoding="utf-8") for path in after}
    for path, text in after.items():
        path.write_text(text, encoding="utf-8")
    return before


def verdict(copy: Path, mutation: Mutation) -> tuple[bool, str]:
    """Whether a test noticed the mutation, and which one."""
    before: dict[Path, str] = {}
    try:
        before = apply(copy, mutation)
        result = run_tests(copy, mutation.tests)
    except (LookupError, OSError) as error:
        return False, f"does not fit the code any more: {error}"
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
    if result.returncode == TESTS_PASSED:
        return False, "SURVIVED"
    red = FAILED.search(result.stdout)
    if result.returncode != TESTS_FAILED or red is None:
        return False, f"the tests did not run: {result.stdout[-400:]}{result.stderr[-400:]}"
    return True, red[1]


def main(words: Sequence[str]) -> int:
    chosen = [case for case in MUTATIONS if all(word in case.says for word in words)]
    with tempfile.TemporaryDirectory(prefix="siteatlas-mutations-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(PROJECT, copy, ignore=LEFT_OUT)
        Path(folder).chmod(0o755)  # the embedded server may run as another user
        unchanged = run_tests(copy, sorted({test for case in chosen for test in case.tests}))
        if unchanged.returncode != TESTS_PASSED:
            print(unchanged.stdout[-2000:])
            print("The tests are red without any mutation.")
            return 1
        print("| mutation | test that goes red |\n|---|---|")
        survived = 0
        for case in chosen:
            noticed, detail = verdict(copy, case)
            survived += not noticed
            print(f"| {case.says} | {f'`{detail}`' if noticed else detail} |", flush=True)
    print(f"\n{len(chosen) - survived} of {len(chosen)} mutations were noticed.")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
