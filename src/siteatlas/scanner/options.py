"""The options of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from siteatlas.scanner.child_filter import ChildFilter

MAX_DOCUMENTS = 10_000


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Choices for one scan.

    `max_urls` counts URLs over all documents, `urls_done` those that an earlier attempt at this
    scan has stored. `only_document` scans exactly that sitemap and its children.
    `manual_documents` are sitemaps that a person named earlier; they are read in addition to what
    the site names. `robots_sitemaps` False passes over the Sitemap lines of robots.txt.
    `child_filter` chooses which children of indexes are read.
    `find_duplicates` notes URLs that a document lists twice, for about a fifteenth more time;
    the recorder knows already.
    """

    max_urls: int | None = None
    probe: Literal["auto", "full"] = "auto"
    max_documents: int = MAX_DOCUMENTS
    max_depth: int = 5
    documents_in_flight: int = 4
    robots_unreachable: Literal["retry", "proceed"] = "retry"
    only_document: str | None = None
    manual_documents: tuple[str, ...] = ()
    urls_done: int = 0
    robots_sitemaps: bool = True
    find_duplicates: bool = False
    child_filter: ChildFilter | None = None
