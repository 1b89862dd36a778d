"""Lets `python -m siteatlas` stand for the command `siteatlas`."""

from __future__ import annotations

from siteatlas.cli.main import main

main()
