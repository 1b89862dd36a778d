"""The documents that a scan reads at the moment, with what is stored of their entries.

Usually that is loaded in the background once a document is opened. Of a document that was read
before, it is loaded earlier, so that the scanner can recognize the entries that have not changed.
"""

from __future__ import annotations

from uuid import UUID

from siteatlas.errors import DatabaseError
from siteatlas.processor.documents import DocumentRegistry, ScannedDocument
from siteatlas.processor.known_documents import load_document
from siteatlas.processor.memory_budget import MemoryBudget
from siteatlas.scanner.scan_memory import KnownEntries


class OpenDocuments:
    """The open documents of one scan by id; the scanner calls `load` and `forget`."""

    def __init__(self, documents: DocumentRegistry, budget: MemoryBudget) -> None:
        self._documents = documents
        self._budget = budget
        self._open: dict[UUID, ScannedDocument] = {}

    async def load(self, url: str) -> KnownEntries | None:
        """Load the stored entries of a document before it is opened; None if all must be read.

        After a fault of the database they are loaded again by `open`, where the fault is raised.
        """
        document = self._documents.find(url)
        if document is None or document.fresh or document.id in self._open:
            return None
        self._open[document.id] = document
        document.start_loading(load_document(document, self._budget, with_digests=True))
        try:
            await document.wait_loaded()
        except DatabaseError:
            await document.abandon()
            return None
        document.preloaded = True
        assert document.memory is not None
        return document.memory.known_entries

    async def forget(self, url: str) -> None:
        """Drop what was loaded of a document that turned out to be no sitemap."""
        document = self._documents.find(url)
        if document is not None and document.preloaded:
            self._open.pop(document.id, None)
            await document.abandon()

    async def open(self, document: ScannedDocument) -> None:
        """Note that a document is read, and start to load its entries unless that was done.

        It may be opened again after a redirect: its memory is returned to the budget before the
        entries are loaded again (decision 0021).
        """
        if not document.preloaded:
            await document.abandon()
            document.start_loading(load_document(document, self._budget))
        document.preloaded = False
        self._open[document.id] = document

    def get(self, document_id: UUID) -> ScannedDocument | None:
        """The document with this id, if it is open."""
        return self._open.get(document_id)

    def close(self, document_id: UUID) -> None:
        """Note that the reading of a document has ended."""
        self._open.pop(document_id, None)

    async def abandon(self) -> None:
        """Drop what is loaded of all open documents."""
        for document in self._open.values():
            await document.abandon()
