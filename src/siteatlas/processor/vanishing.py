"""Finds the documents of a site that have vanished: nothing names them, or they are not found.

A document has vanished if each place that named it was read in this scan and names it no more, or
vanished itself. It is then requested once, unless it never was a sitemap or a user submitted it and
scans have given it up. What is unread, cut or was not asked proves nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from siteatlas.scanner.events import DiscoveryMethod, DocumentProbe
from siteatlas.storage.models import SitemapScanState
from siteatlas.storage.statements.unfinished import NOT_ASKED
from siteatlas.storage.statements.vanished_sitemaps import ParentLink, UnreadDocument

NOT_FOUND = (404, 410)
MAX_PROBES = 100
# Places that are read in every scan of a site, so that silence means something.
NAMING_METHODS = (DiscoveryMethod.ROBOTS_TXT, DiscoveryMethod.SITEMAP_INDEX)

Probe = Callable[[Iterable[str]], AsyncIterator[DocumentProbe]]
IsOtherDocument = Callable[[str, UUID], Awaitable[bool]]


@dataclass(slots=True)
class VanishedDocuments:
    """The documents that a scan found vanished; `not_found` are those that answered 404 or 410."""

    ids: set[UUID] = field(default_factory=set)
    not_found: set[UUID] = field(default_factory=set)

    def add(self, document: UnreadDocument, *, found: bool) -> None:
        """Note a vanished document."""
        self.ids.add(document.id)
        if not found:
            self.not_found.add(document.id)


@dataclass(frozen=True, slots=True)
class VanishingSearch:
    """One search. `sees_all_names`: the scan read robots.txt and met no limit."""

    documents: Sequence[UnreadDocument]
    parents: Sequence[ParentLink]
    sees_all_names: bool
    probe: Probe
    is_other_document: IsOtherDocument

    async def run(self) -> VanishedDocuments:
        """The vanished documents. Children follow their index, so this takes several rounds."""
        vanished = VanishedDocuments()
        for document in self.documents:
            if _was_not_found(document):
                vanished.add(document, found=False)
        asked: set[UUID] = set()
        while unnamed := self._unnamed(vanished, asked):
            vanished.ids |= {document.id for document in unnamed if _needs_no_answer(document)}
            to_ask = [document for document in unnamed if document.id not in vanished.ids]
            to_ask = to_ask[: MAX_PROBES - len(asked)]
            if not to_ask and not any(_needs_no_answer(document) for document in unnamed):
                break
            asked |= {document.id for document in to_ask}
            await self._ask(to_ask, vanished)
        # Beyond the limit of requests, those asked by an earlier scan.
        vanished.ids |= {
            document.id
            for document in self._unnamed(vanished, asked)
            if document.vanished_at is not None
        }
        return vanished

    def _unnamed(self, vanished: VanishedDocuments, asked: set[UUID]) -> list[UnreadDocument]:
        """The documents to ask: nothing names them any more, or they may redirect to others."""
        if not self.sees_all_names:
            return []
        named = {
            link.child_id
            for link in self.parents
            if not (link.is_read or link.is_gone or link.parent_id in vanished.ids)
        }
        return [
            document
            for document in self.documents
            if document.id not in vanished.ids | asked
            and _may_have_vanished(document)
            and document.id not in named
        ]

    async def _ask(self, documents: Sequence[UnreadDocument], vanished: VanishedDocuments) -> None:
        """Request documents once, and note those that have vanished."""
        by_url = {document.requested_url or document.url: document for document in documents}
        async for answer in self.probe(list(by_url)):
            document = by_url[answer.url]
            if answer.http_status in NOT_FOUND:
                vanished.add(document, found=False)
            elif answer.error_code is None and await self._is_left(document, answer.final_url):
                vanished.add(document, found=True)

    async def _is_left(self, document: UnreadDocument, final_url: str) -> bool:
        """Whether a document that is still there does not belong to the site any more."""
        if final_url != document.url and await self.is_other_document(final_url, document.id):
            return True
        return document.state is None and document.discovery_method in NAMING_METHODS


def _was_not_found(document: UnreadDocument) -> bool:
    """Whether the scan requested the document and got 404 or 410."""
    if document.state is None:
        return document.candidate_status in NOT_FOUND
    return document.state is SitemapScanState.UNREAD and document.http_status in NOT_FOUND


def _needs_no_answer(document: UnreadDocument) -> bool:
    """Whether a document that nothing names has vanished, whatever it would answer."""
    given_up = document.discovery_method == DiscoveryMethod.MANUAL
    return document.state is None and (given_up or document.last_complete_at is None)


def _may_have_vanished(document: UnreadDocument) -> bool:
    """Whether the scan never came to the document; a fault of it proves nothing."""
    return document.state is None or document.error_code == NOT_ASKED
