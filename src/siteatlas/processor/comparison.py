"""Compares the entries of a document with the stored ones; what must be written goes to a batch.

`record_entries` classifies listed entries by fingerprint and date. `conclude` adds what the end of
a read says of the entries that it did not show. Only a complete read says anything of them, and
nothing is removed here: they are marked as missing, and whether they were removed is decided when
the scan is published. Entries of a window, which lists recent ones only, have expired; those of a
document that was stored by an earlier version are brought up to date silently (decision 0012).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import orjson
from xxhash import xxh3_64_intdigest

from siteatlas.catalog.url_copy import UrlRows, date_numbers
from siteatlas.catalog.urls import url_hashes
from siteatlas.catalog.write_batch import WriteBatch
from siteatlas.hash_arrays import SIGN_BIT, TWO_TO_64, signed64
from siteatlas.processor.documents import OpenedScan, ScannedDocument
from siteatlas.processor.entries import (
    READ_VERSION,
    EntryMemory,
    Picked,
    UrlBreakdown,
)
from siteatlas.scanner.events import (
    DocumentClosed,
    DocumentOutcome,
    EntriesRead,
    EntryColumns,
    UnchangedBy,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import stored_texts


def record_entries(document: ScannedDocument, event: EntriesRead, batch: WriteBatch) -> None:
    """Add the entries of an event that are new or have changed to the batch.

    Those that the document lists repeatedly are counted in its tally.
    """
    listed = _rows_to_store(event.columns)
    assert document.memory is not None
    picked = document.memory.pick(listed)
    document.breakdown = document.breakdown or UrlBreakdown()
    document.breakdown.add(listed.url, listed.dates, picked.repeated)
    if len(picked.new) == len(listed.url):
        batch.new_urls.append(document.id, listed)
        return
    batch.new_urls.append(document.id, listed.at(picked.new))
    batch.changed_urls.append(document.id, listed.at(picked.changed))
    _add_repeated(document, picked, listed, batch)


def _rows_to_store(columns: EntryColumns) -> UrlRows:
    # Sorted keys, so that scanned and stored entries compare equal.
    extras = [
        None if extra is None else orjson.dumps(extra, option=orjson.OPT_SORT_KEYS).decode()
        for extra in columns.extras
    ]
    return UrlRows(
        url_hash=url_hashes(columns.urls),
        url=columns.urls,
        lastmod=columns.lastmods,
        changefreq=columns.changefreqs,
        priority=columns.priorities,
        extras=extras,
        fingerprint=fingerprints(columns.changefreqs, columns.priorities, extras),
        lastmod_text=stored_texts(columns.lastmods, columns.listed_lastmods()),
        dates=date_numbers(columns.lastmods),
    )


def _add_repeated(
    document: ScannedDocument, picked: Picked, listed: UrlRows, batch: WriteBatch
) -> None:
    if picked.set_aside or picked.settled:
        document.set_aside = aside = document.set_aside or UrlRows()
        for index in picked.set_aside:
            aside.put_latest(document.id, listed, index)
        for index in picked.settled:
            aside.discard(document.id, listed.url_hash[index])
    for index in picked.later:
        batch.repeated_urls.put_latest(document.id, listed, index)
    for index in picked.repeated:
        document.note_repeated(listed.url[index])


def fingerprints(
    changefreqs: Sequence[str | None],
    priorities: Sequence[float | None],
    extras: Sequence[str | None],
) -> list[int]:
    """A stable 64-bit hash for each entry of all its values but the date; `extras` are JSON texts.

    Loops without helper functions, because they run for every listed URL.
    """
    if extras.count(None) == len(extras):
        if extras and _are_equal(changefreqs) and _are_equal(priorities):
            return [_plain_fingerprint(changefreqs[0], priorities[0])] * len(extras)
        return list(map(_plain_fingerprint, changefreqs, priorities))
    digest = xxh3_64_intdigest
    texts = [
        None if extra is None else f"{_plain_text(changefreq, priority)}{extra}"
        for changefreq, priority, extra in zip(changefreqs, priorities, extras, strict=True)
    ]
    return [
        _plain_fingerprint(changefreq, priority)
        if text is None
        else (h - TWO_TO_64 if (h := digest(text.encode())) >= SIGN_BIT else h)
        for changefreq, priority, text in zip(changefreqs, priorities, texts, strict=True)
    ]


@lru_cache(maxsize=4_096)
def _plain_fingerprint(changefreq: str | None, priority: float | None) -> int:
    """The fingerprint of an entry without extras: few combinations occur."""
    return signed64(xxh3_64_intdigest(_plain_text(changefreq, priority).encode()))


def _plain_text(changefreq: str | None, priority: float | None) -> str:
    return f"|{changefreq or ''}|{'' if priority is None else priority}|"


def _are_equal(values: Sequence[object]) -> bool:
    return values[0] == values[-1] and values.count(values[0]) == len(values)


def conclude(
    document: ScannedDocument, event: DocumentClosed, scan: OpenedScan, batch: WriteBatch
) -> None:
    """Add what follows from the end of a read to the batch; the document is closed afterwards."""
    match event.unchanged_by:
        case UnchangedBy.NOT_MODIFIED:
            batch.not_modified.add(document.id)
        case UnchangedBy.CONTENT_HASH:
            batch.same_content.add(document.id)
    memory = document.memory
    if memory is None:
        return
    add_set_aside(document, batch)
    document.changes |= {
        "url_count": memory.listed_count,
        "missing_count": memory.missing_count,
    }
    is_complete = event.outcome is DocumentOutcome.COMPLETE
    if is_complete or document.last_read.read_version is None:
        breakdown = document.breakdown
        document.changes["url_breakdown"] = {} if breakdown is None else breakdown.stored()
    if is_complete:
        _conclude_complete(document, memory, event, scan, batch)


def add_set_aside(document: ScannedDocument, batch: WriteBatch) -> None:
    """Add the entries that waited for a later listing of their URL, when the document has ended."""
    if document.set_aside:
        batch.changed_urls.append(document.id, document.set_aside)
        document.set_aside = None


def _conclude_complete(
    document: ScannedDocument,
    memory: EntryMemory,
    event: DocumentClosed,
    scan: OpenedScan,
    batch: WriteBatch,
) -> None:
    last = document.last_read
    document.changes |= {
        "read_version": READ_VERSION,
        "is_window": event.is_window,
        "validator_lies": last.validator_lies + event.validators_lied,
    }
    if is_silent(document, scan):
        document.changes["baseline_scan_id"] = scan.id
    _judge_dates(document, memory, batch)
    if event.proves_removals:
        _add_unseen(document, memory, event, batch)


def _judge_dates(document: ScannedDocument, memory: EntryMemory, batch: WriteBatch) -> None:
    last = document.last_read
    before = LastmodTrust(last.lastmod_trusted, last.lastmod_streak)
    dated, moved = memory.dated, memory.moved
    if memory.sample is not None and not before.trusted:
        dated, moved = memory.sample.compared, memory.sample.moved
    trust = before.after_read(dated=dated, moved=moved)
    document.changes |= {"lastmod_trusted": trust.trusted, "lastmod_streak": trust.streak}
    if memory.sample is not None:
        document.changes["lastmod_sample"] = {} if trust.trusted else memory.sample.stored()
    if before.trusted and not trust.trusted:
        batch.distrusted.append(document.id)


class LastmodTrust(NamedTuple):
    """Whether dates are trusted, and how many reads in a row have spoken for the opposite.

    Some generators write the time of generation into every entry. Where nearly all dates move and
    nothing else does, a date says nothing about its page.
    """

    trusted: bool = True
    streak: int = 0

    def after_read(self, *, dated: int, moved: int) -> LastmodTrust:
        """The trust after a complete read.

        `dated` entries had a date; of `moved` ones nothing but the date had changed.
        """
        all_moved = dated >= 20 and moved >= 0.9 * dated
        few_moved = moved < 0.1 * dated
        if not (all_moved if self.trusted else few_moved):
            return LastmodTrust(self.trusted, 0)
        # One read of this kind may be a coincidence, two in a row are not.
        if self.streak + 1 < 2:
            return LastmodTrust(self.trusted, self.streak + 1)
        return LastmodTrust(not self.trusted, 0)


def _add_unseen(
    document: ScannedDocument, memory: EntryMemory, event: DocumentClosed, batch: WriteBatch
) -> None:
    if event.is_window or was_read_by_another_version(document):
        batch.expired[document.id] = memory.unseen()
        document.changes |= {"url_count": len(memory), "missing_count": 0}
    else:
        batch.missing[document.id] = memory.newly_missing()
        document.changes["missing_count"] = memory.listed_count - len(memory)


def is_silent(document: ScannedDocument, scan: OpenedScan) -> bool:
    """Whether changes of the entries of a document are not reported.

    Before the first complete scan of its site, and if another version has stored it.
    """
    return not scan.has_baseline or was_read_by_another_version(document)


def was_read_by_another_version(document: ScannedDocument) -> bool:
    """Whether the stored entries cannot be compared with what this version reads."""
    return document.last_read.read_version not in (None, READ_VERSION)


def shows_all_children(event: DocumentClosed, reasons: Collection[str]) -> bool:
    """Whether all that an index lists was reported; not after a limit, and not with a filter."""
    limits = {
        ProblemCode.DOCUMENT_LIMIT,
        ProblemCode.DEPTH_LIMIT,
        ProblemCode.CROSS_HOST_CAP,
        ProblemCode.SITEMAPS_FILTERED,
    }
    return event.outcome is DocumentOutcome.COMPLETE and limits.isdisjoint(reasons)
