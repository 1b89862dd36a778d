"""A demo site that changes while it is served: pages come, move, get new dates, break and go.

The steps follow a fixed cycle, so that every run looks the same. Who runs them decides how often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import cycle

from siteatlas.demo.documents import (
    DAYS_WITH_CHANGES,
    FIRST_DAY,
    Entry,
    ServedDocument,
    page,
    urlset_text,
    xml,
)
from siteatlas.demo.sites import MISSING, TOPICS, SiteContent, SitePlan, robots

CHANGE_SECONDS = 3.0
GUIDES, REVIEWS = "guides", "reviews"
PAGES_AT_FIRST = 30
BROKEN = page("The database of this shop is busy", status=500)


class ChangingSite:
    """Two sitemaps, guides and reviews, whose pages change with every step."""

    def __init__(self) -> None:
        self._base = ""
        self._clock = 0
        self._added = PAGES_AT_FIRST
        # The page number and the step that gave it its date.
        self._pages: dict[str, dict[int, int]] = {GUIDES: {}, REVIEWS: {}}
        self._is_broken = False
        self._closed_paths = 1
        self._documents: dict[str, ServedDocument] = {}
        self._steps = cycle(self._cycle())

    @property
    def plan(self) -> SitePlan:
        """The site before it has an address."""
        return SitePlan("journal", "with --changing: pages come, move, change and go", self._build)

    def step(self) -> str:
        """Change something, and return what."""
        self._clock += 1
        done = next(self._steps)()
        self._serve()
        return done

    def _cycle(self) -> tuple[Callable[[], str], ...]:
        """The steps, in their order."""
        return (
            self._add_guides,
            self._date_guide,
            self._drop_guides,
            self._move_guide,
            self._add_guides,
            self._break_reviews,
            self._add_guides,
            self._mend_reviews,
            self._close_path,
            self._drop_review,
        )

    def _build(self, base: str) -> SiteContent:
        """The content at first; it is replaced while the site is served."""
        self._base = base
        for section in self._pages:
            self._pages[section] = dict.fromkeys(range(PAGES_AT_FIRST), 0)
        self._serve()
        count = sum(map(len, self._pages.values()))
        return SiteContent(self._documents, MISSING, expected_urls=count, expected_sitemaps=2)

    def _serve(self) -> None:
        """Write all documents anew."""
        closed = [f"Disallow: /private-{n}/" for n in range(self._closed_paths)]
        named = [f"Sitemap: {self._base}/{section}.xml" for section in self._pages]
        self._documents["/"] = page("A journal that is never finished")
        self._documents["/robots.txt"] = robots(*closed, *named)
        for section, pages in self._pages.items():
            entries = [self._entry(section, number, at) for number, at in pages.items()]
            self._documents[f"/{section}.xml"] = xml(urlset_text(entries))
        if self._is_broken:
            self._documents[f"/{REVIEWS}.xml"] = BROKEN

    def _entry(self, section: str, number: int, changed_at: int) -> Entry:
        """One page of the changing site; a page keeps its address when it moves."""
        kind = REVIEWS if section == REVIEWS and number < PAGES_AT_FIRST else GUIDES
        lastmod = (
            FIRST_DAY + timedelta(days=number % 28 + changed_at % DAYS_WITH_CHANGES)
        ).isoformat()
        return Entry(f"{self._base}/{kind}/{TOPICS[number % 8]}-{number:03d}", lastmod)

    def _add_guides(self) -> str:
        """Add three guides."""
        numbers = range(self._added, self._added + 3)
        self._pages[GUIDES] |= dict.fromkeys(numbers, self._clock)
        self._added += len(numbers)
        return "added 3 guides"

    def _date_guide(self) -> str:
        """Give the newest guide another date."""
        self._pages[GUIDES][max(self._pages[GUIDES])] = self._clock
        return "changed a guide"

    def _drop_guides(self) -> str:
        """Drop the oldest guides, as many as were added in a cycle."""
        guides = self._pages[GUIDES]
        for number in sorted(guides)[: max(1, len(guides) - PAGES_AT_FIRST)]:
            del guides[number]
        return "dropped guides"

    def _move_guide(self) -> str:
        """List the newest guide among the reviews instead."""
        number = max(self._pages[GUIDES])
        self._pages[REVIEWS][number] = self._pages[GUIDES].pop(number)
        return "moved a guide to the reviews"

    def _break_reviews(self) -> str:
        """Answer requests for the reviews with an error."""
        self._is_broken = True
        return "broke the reviews"

    def _mend_reviews(self) -> str:
        """Serve the reviews again."""
        self._is_broken = False
        return "mended the reviews"

    def _close_path(self) -> str:
        """Add a line to robots.txt, or start again with one."""
        self._closed_paths = self._closed_paths % 5 + 1
        return "changed robots.txt"

    def _drop_review(self) -> str:
        """Drop the oldest review."""
        reviews = self._pages[REVIEWS]
        del reviews[min(reviews)]
        return "dropped a review"


async def keep_changing(site: ChangingSite, seconds: float = CHANGE_SECONDS) -> None:
    """Change a site step by step, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        site.step()
