"""A pace that was asked for holds for every host."""

from __future__ import annotations

import time

from siteatlas.cli.scanning.steady_pace import SteadyPace
from siteatlas.net.address import parse_site

OWN = parse_site("http://127.0.0.1:9000")


async def test_even_an_own_host_is_asked_no_faster():
    pace = SteadyPace(0.05, 2)
    started = time.monotonic()
    for _ in range(4):
        async with pace.slot(OWN, own=True):
            pass
    assert time.monotonic() - started >= 0.15


def test_there_is_one_memory_for_a_host():
    pace = SteadyPace(0.05, 2)
    pace.record(OWN, ok=False, own=True)
    pace.pause(OWN, 0.0, own=True)
    pace.record(OWN, ok=False)
    assert pace.known_hosts == 1
