"""Runs the script: each scan, its events in the feed, and a copy of the site from each position."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx

from siteatlas.storage.models import Job
from tests.catalog.database.script import Step
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.feed import FeedClient, Mirror, differences, event_lines, with_differences
from tests.fixtures.passing_time import let_minutes_pass

# Runs one scan of the script; whether that was disturbed.
Run = Callable[[ChangingSite, int], Awaitable[tuple[Job, bool]]]


class Performance:
    """The script, scan by scan: the events of each, and a copy of the site from each position."""

    def __init__(self, site: ChangingSite, http: httpx.AsyncClient, run: Run) -> None:
        self._site = site
        self._run = run
        self._feed = FeedClient(http, site.host_port, limit=50)
        self._mirrors: list[Mirror] = []
        self.disturbed = 0

    async def play(self, number: int, step: Step) -> None:
        """One step: what the feed says of it must be the log, and every copy must be right."""
        await let_minutes_pass(step.minutes)
        expected = step.change(self._site)
        before = await self._feed.head() if number else 0
        job, was_disturbed = await self._run(self._site, number)
        self.disturbed += was_disturbed
        assert job.status == ("failed" if step.fails else "completed"), (step.name, job.error)
        events = await self._feed.events(after=before)
        wrong = differences(event_lines(events, self._site.base), expected)
        assert not wrong, f"{step.name}: {wrong}"
        await self._check_mirrors(step)

    async def check_past_states(self) -> None:
        """What is listed at each position now must be what was listed then."""
        for mirror in self._mirrors:
            assert await self._feed.past_listing(mirror.as_of) == (mirror.as_of, mirror.entries)

    async def check_comparisons(self) -> None:
        """The first and the last state with the differences of scans must be those between."""
        scans = await self._feed.scans()
        known = [mirror for mirror in self._mirrors if mirror.as_of in scans]
        pairs = [(known[0], mirror) for mirror in known[1:]]
        pairs += [(mirror, known[-1]) for mirror in known[1:]]
        for first, last in pairs:
            found = await self._feed.differences(scans[first.as_of], scans[last.as_of])
            assert with_differences(first.entries, found) == last.entries, (first, last)

    async def _check_mirrors(self, step: Step) -> None:
        self._mirrors.append(await Mirror.of(self._feed))
        events = await self._feed.events()
        for mirror in self._mirrors:
            replayed = await mirror.replay(events, self._feed.document)
            assert replayed == self._mirrors[-1].entries, (step.name, mirror.as_of)
