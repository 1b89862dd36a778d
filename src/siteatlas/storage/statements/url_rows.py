"""New and changed URLs on their way into `sitemap_urls`, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

LINE_BREAK = "\n"


@dataclass(slots=True)
class UrlRows:
    """Rows of `sitemap_urls`, column by column. `extras` are JSON texts.

    `runs` says how many rows in a row belong to which document; `size` is about the memory, in
    bytes, that all of it takes. `contested` rows may be stored already.
    """

    runs: list[tuple[UUID, int]] = field(default_factory=list)
    url_hash: list[int] = field(default_factory=list)
    url: list[str] = field(default_factory=list)
    lastmod: list[datetime | None] = field(default_factory=list)
    changefreq: list[str | None] = field(default_factory=list)
    priority: list[float | None] = field(default_factory=list)
    extras: list[str | None] = field(default_factory=list)
    fingerprint: list[int] = field(default_factory=list)
    lastmod_text: list[str | None] = field(default_factory=list)
    size: int = 0
    contested: bool = False

    def __len__(self) -> int:
        return len(self.url_hash)

    def parameters(self) -> dict[str, Any]:
        """The columns as parameters of a statement."""
        sitemap_ids = list(dict.fromkeys(sitemap_id for sitemap_id, _ in self.runs))
        place = {sitemap_id: str(n) for n, sitemap_id in enumerate(sitemap_ids, start=1)}
        places = [place[sitemap_id] for sitemap_id, count in self.runs for _ in range(count)]
        return {
            "p_sitemap_ids": sitemap_ids,
            "p_place": LINE_BREAK.join(places),
            "p_url_hash": self.url_hash,
            "p_url": LINE_BREAK.join(self.url),
            "p_lastmod": self.lastmod,
            "p_changefreq": _join_column(self.changefreq),
            "p_priority": _join_column(None if p is None else str(p) for p in self.priority),
            "p_extras": _join_column(self.extras),
            "p_fingerprint": self.fingerprint,
            "p_lastmod_text": self.lastmod_text,
        }


def _join_column(values: Iterable[str | None]) -> str:
    """A text column of `sitemap_urls` as one statement parameter; an empty line means NULL."""
    return LINE_BREAK.join([value or "" for value in values])
