"""What the end of a read says of a document and of the entries that it did not show.

Only a complete read says anything of them, and nothing is removed here: they are marked as missing,
and whether they were removed is decided when the scan is published. Entries of a window, which
lists recent ones only, have expired; those of a document that was stored by an earlier version are
brought up to date silently (decision 0035).
"""

from __future__ import annotations

from collections.abc import Collection

from siteatlas.processor.comparison import add_set_aside
from siteatlas.processor.documents import OpenedScan, ScannedDocument
from siteatlas.processor.entry_memory import EntryMemory
from siteatlas.processor.fingerprints import READ_VERSION
from siteatlas.processor.lastmod_trust import LastmodTrust
from siteatlas.scanner.events import DocumentClosed, DocumentOutcome, UnchangedBy
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.storage.statements.write_batch import WriteBatch

# Reasons for which children of an index may not have been reported.
LIMITS = frozenset(
    (
        ProblemCode.DOCUMENT_LIMIT,
        ProblemCode.DEPTH_LIMIT,
        ProblemCode.CROSS_HOST_CAP,
        ProblemCode.SITEMAPS_FILTERED,
    )
)


def shows_all_children(event: DocumentClosed, reasons: Collection[str]) -> bool:
    """Whether all that an index lists was reported; not after a limit, and not with a filter."""
    return event.outcome is DocumentOutcome.COMPLETE and LIMITS.isdisjoint(reasons)


def is_silent(document: ScannedDocument, scan: OpenedScan) -> bool:
    """Whether changes of the entries of a document are not reported.

    Before the first complete scan of its site, and if another version has stored it.
    """
    return not scan.has_baseline or was_read_by_another_version(document)


def was_read_by_another_version(document: ScannedDocument) -> bool:
    """Whether the stored entries cannot be compared with what this version reads."""
    return document.last_read.read_version not in (None, READ_VERSION)


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
    _keep_breakdown(document, event)
    if event.outcome is DocumentOutcome.COMPLETE:
        _conclude_complete(document, memory, event, scan, batch)


def _keep_breakdown(document: ScannedDocument, event: DocumentClosed) -> None:
    """Store how the entries of a read are distributed, if it is complete or the best so far."""
    is_best = document.last_read.read_version is None or event.outcome is DocumentOutcome.COMPLETE
    if is_best:
        breakdown = document.breakdown
        document.changes["url_breakdown"] = {} if breakdown is None else breakdown.stored()


def _conclude_complete(
    document: ScannedDocument,
    memory: EntryMemory,
    event: DocumentClosed,
    scan: OpenedScan,
    batch: WriteBatch,
) -> None:
    """What follows from a document that was read to its end."""
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
    """Decide whether the dates of a document that was read to its end are trusted."""
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


def _add_unseen(
    document: ScannedDocument, memory: EntryMemory, event: DocumentClosed, batch: WriteBatch
) -> None:
    """Add the stored entries that a complete read did not show to the batch."""
    if event.is_window or was_read_by_another_version(document):
        batch.expired.append(document.id, memory.unseen())
        document.changes |= {"url_count": len(memory), "missing_count": 0}
    else:
        batch.missing.append(document.id, memory.newly_missing())
        document.changes["missing_count"] = memory.listed_count - len(memory)
