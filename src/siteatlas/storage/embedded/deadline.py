"""A wait with a deadline that reports what it is waiting for."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.01
MESSAGE_INTERVAL_SECONDS = 5


class Deadline:
    """Waits in small steps up to a limit, with a word every few seconds."""

    def __init__(self, announce: Callable[[str], None], seconds: float) -> None:
        self._announce = announce
        self._began = time.monotonic()
        self._limit = seconds
        self._next_word = float(MESSAGE_INTERVAL_SECONDS)

    def wait(self, waiting_for: str, *, seconds: float = PAUSE_SECONDS) -> bool:
        """Sleep a moment; False when the time is up."""
        time.sleep(seconds)
        waited = time.monotonic() - self._began
        if waited >= self._next_word:
            self._next_word += MESSAGE_INTERVAL_SECONDS
            self._announce(f"{waiting_for} ({waited:.0f} s so far)")
        return waited < self._limit
