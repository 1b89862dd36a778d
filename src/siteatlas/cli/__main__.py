"""Runs the command `siteatlas` as `python -m siteatlas.cli`."""

from __future__ import annotations

from siteatlas.cli.main import main

main()
