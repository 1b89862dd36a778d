"""Runs a program of `siteatlas.cli.scripts`, or says how to install Siteatlas."""

from __future__ import annotations

import sys

USAGE_ERROR = 2


def launch(program: str) -> None:
    try:
        from siteatlas.cli import scripts as programs
    except ImportError as error:
        sys.stderr.write(
            f"siteatlas: {error}: {sys.executable} does not have Siteatlas.\n"
            "Run it with .venv/bin/python, or run `make run` first: that creates .venv.\n"
        )
        sys.exit(USAGE_ERROR)
    programs.run_script(getattr(programs, program))
