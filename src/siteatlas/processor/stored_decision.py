"""The form in which a removal decision is stored on its scan, for an attempt that continues it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from siteatlas.processor.removals import HeldRemovals, HoldReason, RemovalDecision
from siteatlas.storage.models import RemovalEvidence
from siteatlas.storage.statements.removed_urls import Removal


def dump_decision(decision: RemovalDecision) -> dict[str, Any]:
    """The decision as JSON."""
    return {
        "removals": [
            {
                "sitemap_id": str(removal.sitemap_id),
                "missing_scan_id": removal.missing_scan_id,
                "evidence": removal.evidence.value,
                "not_before": _dump_time(removal.not_before),
                "not_after": _dump_time(removal.not_after),
            }
            for removal in decision.removals
        ],
        "held": decision.held.count,
        "documents": {url: reason.value for url, reason in decision.held.documents.items()},
    }


def load_decision_from(stored: dict[str, Any]) -> RemovalDecision:
    """The decision that was stored."""
    removals = tuple(
        Removal(
            UUID(row["sitemap_id"]),
            row["missing_scan_id"],
            RemovalEvidence(row["evidence"]),
            _load_time(row["not_before"]),
            _load_time(row["not_after"]),
        )
        for row in stored["removals"]
    )
    documents = {url: HoldReason(reason) for url, reason in stored["documents"].items()}
    return RemovalDecision(removals, HeldRemovals(stored["held"], documents))


def _dump_time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _load_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
