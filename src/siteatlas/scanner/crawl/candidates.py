"""Candidates: addresses where a sitemap may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from siteatlas.net.address import WebAddress
from siteatlas.scanner.events import DiscoveryMethod


@dataclass(frozen=True, slots=True)
class CrawlCandidate:
    """An address where a sitemap may be, and how it was discovered.

    `may_be_page`: a user gave the address, and its name is not that of a sitemap. If it is not a
    sitemap, the address is treated as that of the site.
    """

    address: WebAddress
    method: DiscoveryMethod
    depth: int = 0
    parent_url: str | None = None
    parent_host: str | None = None
    listed_lastmod: datetime | None = None
    may_be_page: bool = False
    below_robots: bool = False

    @property
    def named_by_robots(self) -> bool:
        """Whether robots.txt names this document or an index above it."""
        return self.below_robots or self.method is DiscoveryMethod.ROBOTS_TXT

    @property
    def is_guess(self) -> bool:
        """Whether it is a guessed path."""
        return self.method is DiscoveryMethod.COMMON_PATH

    @property
    def is_child(self) -> bool:
        """Whether an index lists it."""
        return self.method is DiscoveryMethod.SITEMAP_INDEX
