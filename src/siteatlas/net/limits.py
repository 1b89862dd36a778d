"""Limits in time and bytes for fetching one document."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
# Longer waits that a site asks for are left to the caller.
MAX_RETRY_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Seconds, bytes and counts; tests use smaller ones.

    `document` is the time spent on the network for one document over all redirects and tries; the
    time that politeness or the reader takes does not count. Slower
    than `lowest_speed` bytes a second over any `speed_window` seconds is too slow. A site that asks
    us to come back within `max_retry_after` seconds is waited for; longer waits are the caller's.
    """

    dns: float = 5.0
    connect: float = 10.0
    first_byte: float = 30.0
    idle: float = 20.0
    document: float = 180.0
    max_bytes: int = 100 * MIB
    header_bytes: int = 64 * 1024
    redirects: int = 5
    lowest_speed: float = 1024.0
    speed_window: float = 30.0
    tries: int = 3
    retry_delay: float = 0.5
    max_retry_after: float = MAX_RETRY_WAIT_SECONDS
    dns_cache: float = 60.0
