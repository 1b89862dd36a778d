"""Compares entries with stored URLs and adds those that must be written to a batch."""

from __future__ import annotations

from typing import Any

import orjson

from siteatlas.processor.documents import ScannedDocument
from siteatlas.processor.entry_memory import ListedValues, Picked
from siteatlas.processor.fingerprints import Fingerprints, text_numbers
from siteatlas.processor.url_breakdown import UrlBreakdown
from siteatlas.scanner.events import EntriesRead, EntryColumns, RecognizedEntries
from siteatlas.scanner.reading.lastmod_text import stored_texts
from siteatlas.storage.hashes import url_hashes
from siteatlas.storage.statements.url_rows import UrlColumns, date_numbers
from siteatlas.storage.statements.write_batch import WriteBatch


class Comparison:
    """Classifies entries as new, changed or unchanged. Unchanged ones need no write."""

    def __init__(self) -> None:
        self._fingerprints = Fingerprints()

    def record(self, document: ScannedDocument, event: EntriesRead, batch: WriteBatch) -> None:
        """Record the entries of an event, recognized ones first."""
        if event.recognized:
            note_recognized(document, event.recognized)
        if event.columns.urls:
            self.classify(document, event.columns, batch)

    def classify(self, document: ScannedDocument, columns: EntryColumns, batch: WriteBatch) -> None:
        """Add the entries of a document that must be written to the batch.

        Those that the document lists repeatedly are counted in its tally.
        """
        all_columns = self._columns_to_store(columns)
        listed = ListedValues(
            all_columns.url_hash,
            all_columns.fingerprint,
            all_columns.dates,
            text_numbers(all_columns.lastmod_text),
        )
        assert document.memory is not None
        picked = document.memory.pick(listed)
        document.breakdown = document.breakdown or UrlBreakdown()
        document.breakdown.add(all_columns.url, all_columns.dates, picked.repeated)
        if len(picked.new) == len(listed.hashes):
            batch.new_urls.append(document.id, all_columns)
            return
        batch.new_urls.append(document.id, all_columns.at(picked.new))
        batch.changed_urls.append(document.id, all_columns.at(picked.changed))
        _add_repeated(document, picked, all_columns, batch)

    def _columns_to_store(self, columns: EntryColumns) -> UrlColumns:
        """The entries as they are stored."""
        extras = [
            None if extra is None else _serialize_scanned_extras(extra) for extra in columns.extras
        ]
        prints = self._fingerprints.fingerprint_entries(
            columns.changefreqs, columns.priorities, extras
        )
        return UrlColumns(
            url_hashes(columns.urls),
            columns.urls,
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            extras,
            prints,
            stored_texts(columns.lastmods, columns.listed_lastmods()),
            columns.all_digests(),
            date_numbers(columns.lastmods),
        )


def note_recognized(document: ScannedDocument, recognized: RecognizedEntries) -> None:
    """Record the entries of a document that are listed as they are stored."""
    assert document.memory is not None
    picked = document.memory.pick_recognized(recognized.positions)
    document.breakdown = document.breakdown or UrlBreakdown()
    document.breakdown.add(recognized.urls, picked.dates, picked.repeated)
    for index in picked.repeated:
        document.note_repeated(recognized.urls[index])
    for key in picked.settled:
        if document.set_aside:
            document.set_aside.pop(key, None)
    document.must_read_again = document.must_read_again or picked.replaced


def add_set_aside(document: ScannedDocument, batch: WriteBatch) -> None:
    """Add the entries that waited for a later listing of their URL, when the document has ended."""
    if document.set_aside:
        rows = document.set_aside.values()
        batch.changed_urls.append(document.id, UrlColumns.of_rows(rows))
        document.set_aside = None


def _add_repeated(
    document: ScannedDocument, picked: Picked, columns: UrlColumns, batch: WriteBatch
) -> None:
    """Keep the latest of several listings of a URL."""
    if picked.set_aside or picked.settled:
        document.set_aside = aside = document.set_aside or {}
        for index in picked.set_aside:
            row = columns.row(index)
            kept = aside.get(row.url_hash)
            if kept is None or kept.order < row.order:
                aside[row.url_hash] = row
        for index in picked.settled:
            aside.pop(columns.url_hash[index], None)
    for index in picked.later:
        batch.add_repeated(document.id, columns.row(index))
    for index in picked.repeated:
        document.note_repeated(columns.url[index])


def _serialize_scanned_extras(extra: dict[str, Any]) -> str:
    """Extras as JSON with sorted keys, so that scanned and stored entries compare equal."""
    return orjson.dumps(extra, option=orjson.OPT_SORT_KEYS).decode()
