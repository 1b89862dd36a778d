"""Runs a program of `siteatlas.cli.seed_scripts`, or says what to do when Siteatlas is missing."""

from __future__ import annotations

import sys

USAGE_ERROR = 2


def launch(program: str) -> None:
    try:
        from siteatlas.cli import seed_scripts  # noqa: PLC0415 it may be missing
    except ImportError as error:
        sys.stderr.write(
            f"siteatlas: {error}: {sys.executable} does not have Siteatlas.\n"
            "Run it with .venv/bin/python, or run `make run` first: that creates .venv.\n"
        )
        sys.exit(USAGE_ERROR)
    seed_scripts.run_script(getattr(seed_scripts, program))
