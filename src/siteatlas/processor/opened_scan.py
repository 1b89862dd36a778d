"""The scan that a job works on, with what an earlier one left behind."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from siteatlas.storage.statements.known_sitemaps import KnownSitemaps


@dataclass(frozen=True, slots=True)
class OpenedScan:
    """The scan that a job works on, and what was stored of its site before.

    `manual` are the addresses of documents that a person named for this site.
    """

    id: int
    domain_id: UUID
    domain: str
    resumed: bool
    known: KnownSitemaps
    manual: tuple[str, ...] = ()
