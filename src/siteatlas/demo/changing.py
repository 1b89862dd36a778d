"""A demo site that changes while it is served: pages come, move, get new dates, break and go.

The steps follow a fixed cycle, so that every run looks the same. Who runs them decides how often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
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
BROKEN = page("The database of this site is busy", status=500)


@dataclass(frozen=True, slots=True)
class ChangingPlan:
    """What a changing site is about: its two sections, their size, and how many pages come at once.

    Pages come and go in the first section, and move from there to the second.
    """

    name: str
    description: str
    sections: tuple[str, str]
    pages: int = 30
    added: int = 3


JOURNAL = ChangingPlan(
    "journal", "changes every few seconds: pages come, move, change and go", ("guides", "reviews")
)
MARKET = ChangingPlan(
    "market", "changes by dozens of pages at a time", ("offers", "stalls"), pages=90, added=36
)


class ChangingSite:
    """Two sitemaps whose pages change with every step."""

    def __init__(self, plan: ChangingPlan = JOURNAL) -> None:
        self._plan = plan
        self._busy, self._calm = plan.sections
        self._base = ""
        self._clock = 0
        self._added = plan.pages
        # The page number and the step that gave it its date.
        self._pages: dict[str, dict[int, int]] = {section: {} for section in plan.sections}
        self._is_broken = False
        self._closed_paths = 1
        self._documents: dict[str, ServedDocument] = {}
        self._steps = cycle(self._cycle())

    @property
    def plan(self) -> SitePlan:
        """The site before it has an address."""
        return SitePlan(self._plan.name, self._plan.description, self._build)

    def step(self) -> str:
        """Change something, and return what."""
        self._clock += 1
        done = next(self._steps)()
        self._serve()
        return done

    def _cycle(self) -> tuple[Callable[[], str], ...]:
        return (
            self._add_pages,
            self._date_page,
            self._drop_pages,
            self._move_page,
            self._add_pages,
            self._break_section,
            self._add_pages,
            self._mend_section,
            self._close_path,
            self._drop_page,
        )

    def _build(self, base: str) -> SiteContent:
        """The content at first; it is replaced while the site is served."""
        self._base = base
        for section in self._pages:
            self._pages[section] = dict.fromkeys(range(self._plan.pages), 0)
        self._serve()
        count = sum(map(len, self._pages.values()))
        return SiteContent(self._documents, MISSING, expected_urls=count, expected_sitemaps=2)

    def _serve(self) -> None:
        closed = [f"Disallow: /private-{n}/" for n in range(self._closed_paths)]
        named = [f"Sitemap: {self._base}/{section}.xml" for section in self._pages]
        self._documents["/"] = page(f"A {self._plan.name} that is never finished")
        self._documents["/robots.txt"] = robots(*closed, *named)
        for section, pages in self._pages.items():
            entries = [self._entry(section, number, at) for number, at in pages.items()]
            self._documents[f"/{section}.xml"] = xml(urlset_text(entries))
        if self._is_broken:
            self._documents[f"/{self._calm}.xml"] = BROKEN

    def _entry(self, section: str, number: int, changed_at: int) -> Entry:
        """One page of the changing site; a page keeps its address when it moves."""
        kind = section if number < self._plan.pages else self._busy
        lastmod = (
            FIRST_DAY + timedelta(days=number % 28 + changed_at % DAYS_WITH_CHANGES)
        ).isoformat()
        return Entry(f"{self._base}/{kind}/{TOPICS[number % 8]}-{number:03d}", lastmod)

    def _add_pages(self) -> str:
        numbers = range(self._added, self._added + self._plan.added)
        self._pages[self._busy] |= dict.fromkeys(numbers, self._clock)
        self._added += len(numbers)
        return f"added {len(numbers)} {self._busy}"

    def _date_page(self) -> str:
        self._pages[self._busy][max(self._pages[self._busy])] = self._clock
        return f"changed one of the {self._busy}"

    def _drop_pages(self) -> str:
        pages = self._pages[self._busy]
        for number in sorted(pages)[: max(1, len(pages) - self._plan.pages)]:
            del pages[number]
        return f"dropped {self._busy}"

    def _move_page(self) -> str:
        number = max(self._pages[self._busy])
        self._pages[self._calm][number] = self._pages[self._busy].pop(number)
        return f"moved one of the {self._busy} to the {self._calm}"

    def _break_section(self) -> str:
        self._is_broken = True
        return f"broke the {self._calm}"

    def _mend_section(self) -> str:
        self._is_broken = False
        return f"mended the {self._calm}"

    def _close_path(self) -> str:
        self._closed_paths = self._closed_paths % 5 + 1
        return "changed robots.txt"

    def _drop_page(self) -> str:
        pages = self._pages[self._calm]
        del pages[min(pages)]
        return f"dropped one of the {self._calm}"


async def keep_changing(site: ChangingSite, seconds: float = CHANGE_SECONDS) -> None:
    """Change a site step by step, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        site.step()
