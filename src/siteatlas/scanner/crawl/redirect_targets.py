"""The addresses that requests of a scan were redirected to: each is read by one visit only.

If that visit cannot read it, the next one that is redirected there tries again, so that each
document that leads to an unreadable page is reported with its own error, not as a duplicate.
"""

from __future__ import annotations

import asyncio

from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.frontier import Frontier


class RedirectTargets:
    """The targets that visits are reading at the moment; the frontier knows those that were read.

    Every claim is released, whatever became of the visit.
    """

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._under_way: dict[str, asyncio.Event] = {}

    async def claim(self, candidate: CrawlCandidate, url: str) -> bool:
        """Claim the final URL of a candidate; False if it was read before, or has a visit of its
        own. Waits while another visit reads it.
        """
        if url == candidate.address.url:
            return True
        while not self._frontier.mark_seen(url):
            other = self._under_way.get(url)
            if other is None:
                return False
            await other.wait()
        self._under_way[url] = asyncio.Event()
        return True

    def release(self, candidate: CrawlCandidate, url: str, *, was_read: bool) -> None:
        """End a claim; a target that was not read may be claimed again."""
        done = self._under_way.pop(url, None)
        if done is not None:
            # For a path that was only guessed, the page behind it need not be looked at twice.
            if not was_read and not candidate.is_guess:
                self._frontier.unmark_seen(url)
            done.set()
