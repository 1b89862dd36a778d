"""Commands run inside the test process: logging, options and settings are put back afterwards."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest

from siteatlas.cli.terminal.context import ColorChoice, begin


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch, tmp_path) -> Iterator[None]:
    """No settings from outside; root logger, invocation and Ctrl-C as before."""
    for name in list(os.environ):
        if name.startswith(("SITEATLAS_", "SITEMAP_SCHEDULER_")) or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    on_interrupt = signal.getsignal(signal.SIGINT)
    begin(0, quiet=False, color=ColorChoice.AUTO)
    yield
    begin(0, quiet=False, color=ColorChoice.AUTO)
    root.handlers[:] = handlers
    root.setLevel(level)
    signal.signal(signal.SIGINT, on_interrupt)
