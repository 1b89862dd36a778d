"""Runs a program of `siteatlas.cli.scripts.programs`, or says how to install Siteatlas."""

from __future__ import annotations

import sys

USAGE_ERROR = 2


def launch(program: str) -> None:
    try:
        from siteatlas.cli.scripts import programs  # noqa: PLC0415 it may be missing
    except ImportError as error:
        sys.stderr.write(
            f"siteatlas: {error}: {sys.executable} does not have Siteatlas.\n"
            "Run it with .venv/bin/python, or run `make run` first: that creates .venv.\n"
        )
        sys.exit(USAGE_ERROR)
    programs.run_script(getattr(programs, program))
