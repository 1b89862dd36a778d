"""Runs the command `siteatlas` as `python -m siteatlas`."""

from __future__ import annotations

from siteatlas.cli.main import main

main()
