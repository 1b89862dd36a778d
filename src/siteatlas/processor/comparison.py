"""Compares entries with stored URLs: which are new, changed or unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from xxhash import xxh3_64_intdigest

from siteatlas.processor.documents import ScannedDocument
from siteatlas.scanner.events import EntryColumns
from siteatlas.scanner.reading.lastmod_text import stored_texts
from siteatlas.storage.hashes import SIGN_BIT, TWO_TO_64, url_hashes
from siteatlas.storage.statements.url_rows import UrlRows

CACHED_ENDINGS = 4_096
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ROW_SIZE = 400
EXTRAS = 5


class Endings(dict[tuple[str | None, float | None], str]):
    """Frequency and priority as text. Few combinations occur, so each is formatted once."""

    def __missing__(self, kind: tuple[str | None, float | None]) -> str:
        changefreq, priority = kind
        text = f"|{changefreq or ''}|{'' if priority is None else priority}|"
        if len(self) < CACHED_ENDINGS:
            self[kind] = text
        return text


class Fingerprints:
    """A stable 64-bit hash of all values that are listed for a URL."""

    def __init__(self) -> None:
        self._endings = Endings()

    def fingerprint_entries(
        self,
        columns: EntryColumns,
        extras: list[str | None],
        lastmod_texts: list[str | None] | None = None,
    ) -> list[int]:
        """One fingerprint per scanned entry, to compare with the fingerprints in the database.

        Texts of dates are part of it only where they are stored. One loop without helper functions,
        because it runs for every listed URL.
        """
        digest, endings = xxh3_64_intdigest, self._endings
        plain = zip(columns.changefreqs, columns.priorities, strict=True)
        texts = [
            endings[kind] + (extra or "")
            if moment is None
            else f"{(moment - EPOCH) // MICROSECOND}{endings[kind]}{extra or ''}"
            for moment, kind, extra in zip(columns.lastmods, plain, extras, strict=True)
        ]
        if lastmod_texts and lastmod_texts.count(None) != len(lastmod_texts):
            pairs = zip(texts, lastmod_texts, strict=True)
            texts = [text if listed is None else f"{listed}|{text}" for text, listed in pairs]
        return [h - TWO_TO_64 if (h := digest(text.encode())) >= SIGN_BIT else h for text in texts]


class Comparison:
    """Classifies entries as new, changed or unchanged. Unchanged ones need no write."""

    def __init__(self) -> None:
        self._fingerprints = Fingerprints()

    def classify(
        self, document: ScannedDocument, columns: EntryColumns, new: UrlRows, changed: UrlRows
    ) -> None:
        """Append the entries of a document that must be written to `new` or `changed`.

        Those that the document lists repeatedly are counted in its tally.
        """
        extras = [
            None if extra is None else _serialize_scanned_extras(extra) for extra in columns.extras
        ]
        hashes = url_hashes(columns.urls)
        lastmod_texts = stored_texts(columns.lastmods, columns.listed_lastmods())
        prints = self._fingerprints.fingerprint_entries(columns, extras, lastmod_texts)
        all_columns = (
            hashes,
            columns.urls,
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            extras,
            prints,
            lastmod_texts,
        )
        memory = document.memory
        assert memory is not None
        if memory.takes_all(hashes):
            _collect_scanned_entries(new, document.id, len(hashes), all_columns)
            return
        fresh, different, repeated = memory.pick(hashes, prints)
        for index in repeated:
            document.note_repeated(columns.urls[index])
        _collect_scanned_entries(new, document.id, len(fresh), _entries_at(all_columns, fresh))
        _collect_scanned_entries(
            changed, document.id, len(different), _entries_at(all_columns, different)
        )


def _entries_at(columns: tuple[list[Any], ...], indexes: list[int]) -> tuple[list[Any], ...]:
    """The columns of the scanned entries at these indexes."""
    return tuple([column[index] for index in indexes] for column in columns)


def _collect_scanned_entries(
    rows: UrlRows, sitemap_id: UUID, count: int, columns: tuple[list[Any], ...]
) -> None:
    """Add compared entries of one document to the new or changed rows that the job will write."""
    if not count:
        return
    rows.runs.append((sitemap_id, count))
    rows.size += count * ROW_SIZE + sum(len(extra) for extra in columns[EXTRAS] if extra)
    targets: tuple[list[Any], ...] = (
        rows.url_hash,
        rows.url,
        rows.lastmod,
        rows.changefreq,
        rows.priority,
        rows.extras,
        rows.fingerprint,
        rows.lastmod_text,
    )
    for target, values in zip(targets, columns, strict=True):
        target.extend(values)


def _serialize_scanned_extras(extra: dict[str, Any]) -> str:
    """Extras as JSON with sorted keys, so that scanned and stored entries compare equal."""
    return orjson.dumps(extra, option=orjson.OPT_SORT_KEYS).decode()
