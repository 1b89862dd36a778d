"""Runs the fast tests on several Pythons, given by name or path.

Without arguments it takes the oldest and the newest supported Python that it finds, and the
system's own, except for that of `make test`; with --oldest only the first of these. Each gets an
environment of its own, build/python-<version>, from the locked requirements.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

OLDEST = (3, 11)
NEWEST_MINOR = 15
SYSTEM = Path("/usr/bin/python3")
PROJECT = Path(__file__).resolve().parent.parent
MAKE_TEST = PROJECT / ".venv" / "bin" / "python"
UV = MAKE_TEST.parent / "uv"
LOCK = PROJECT / "requirements-dev.lock"
PROBE = "import sys, ensurepip, venv; print(*sys.version_info[:3], sys.implementation.name)"

Version = tuple[int, ...]
Command = list[str | Path]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("interpreters", nargs="*", help="names or paths; all must be usable")
    options.add_argument("--oldest", action="store_true", help="only on the oldest Python found")
    arguments = options.parse_args()
    named = [Path(shutil.which(name) or name) for name in arguments.interpreters]
    found = usable(named or candidates())
    if len(found) < len(named):
        return failed("not every named interpreter can be used")
    chosen = list(found) if named else outermost(found)
    if arguments.oldest:
        chosen = chosen[:1]
    print("Testing on:", ", ".join(map(text_of, chosen)) or "nothing", flush=True)
    if not chosen:
        return failed("no supported Python was found")
    results = {version: run(version, found[version]) for version in chosen}
    for version, (ok, seconds) in results.items():
        print(f"Python {text_of(version)}: {'passed' if ok else 'FAILED'} in {seconds:.0f} s")
    return 0 if all(ok for ok, _ in results.values()) else 1


def candidates() -> list[Path]:
    """Interpreters on the path and those that pyenv holds, whether they are active or not."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_MINOR + 1)]
    on_path = [Path(path) for name in names if (path := shutil.which(name))]
    shims = [path for path in on_path if path.parent.name == "shims"]
    versions = {shim.parent.parent / "versions" for shim in shims}
    pyenv = [path for folder in versions for path in folder.glob("3.*/bin/python3")]
    return [path for path in (SYSTEM, *on_path, *pyenv) if path.exists() and path not in shims]


def usable(paths: list[Path]) -> dict[Version, Path]:
    """The interpreters that can be used, by version; says why others cannot."""
    found: dict[Version, Path] = {}
    for path in paths:
        version, reason = probe(path)
        if version is None:
            print(f"Not used: {path}: {reason}")
        else:
            found.setdefault(version, path)
    return dict(sorted(found.items()))


def probe(path: Path) -> tuple[Version | None, str]:
    try:
        answer = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
    except OSError as error:
        return None, str(error.strerror)
    if answer.returncode:
        return None, (answer.stderr.strip().splitlines() or ["it does not start"])[-1]
    *numbers, name = answer.stdout.split()
    version = tuple(map(int, numbers))
    if name != "cpython" or version < OLDEST:
        return None, f"{name} {text_of(version)} is not supported"
    return version, ""


def outermost(found: dict[Version, Path]) -> list[Version]:
    """The oldest, the newest and the system's own; the others are named."""
    if not found:
        return []
    system = {version for version, path in found.items() if path == SYSTEM}
    chosen = sorted({min(found), max(found)} | system)
    of_make_test, _ = probe(MAKE_TEST)
    if of_make_test in chosen and len(chosen) > 1:
        print(f"`make test` runs on {text_of(of_make_test)}.")
        chosen.remove(of_make_test)
    others = [
        f"{path} ({text_of(version)})" for version, path in found.items() if version not in chosen
    ]
    if others:
        print("Found, but tested only when named in PYTHONS:", ", ".join(others))
    return chosen


def run(version: Version, interpreter: Path) -> tuple[bool, float]:
    """Whether the tests pass, and the seconds that it took with the set-up."""
    started = time.monotonic()
    print(f"\nPython {text_of(version)}, {interpreter}", flush=True)
    folder = PROJECT / "build" / f"python-{text_of(version)}"
    ok = is_ready(folder) or set_up(interpreter, folder)
    tests: Command = [
        *(folder / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"),
        *("-m", "not slow and not database", "-o", f"cache_dir={folder / 'pytest'}", "tests"),
    ]
    ok = ok and call(tests)
    return ok, time.monotonic() - started


def is_ready(folder: Path) -> bool:
    mark = folder / ".ready"
    return mark.exists() and mark.stat().st_mtime > LOCK.stat().st_mtime


def set_up(interpreter: Path, folder: Path) -> bool:
    ok = (
        call([interpreter, "-m", "venv", "--clear", folder])
        and install(folder, "--require-hashes", "-r", LOCK)
        and install(folder, "--no-deps", "--no-build-isolation", "-e", PROJECT)
    )
    if ok:
        (folder / ".ready").touch()
    return ok


def install(folder: Path, *what: str | Path) -> bool:
    """Install with uv, which takes seconds; fall back to pip, which may know another index."""
    python = folder / "bin" / "python"
    with_uv: Command = [UV, "pip", "install", "--quiet", "--python", python, *what]
    with_pip: Command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    return (UV.exists() and call(with_uv)) or call([*with_pip, *what])


def call(command: Command) -> bool:
    return subprocess.run(command, cwd=PROJECT, check=False).returncode == 0


def text_of(version: Version) -> str:
    return ".".join(map(str, version))


def failed(reason: str) -> int:
    print(f"Failed: {reason}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
