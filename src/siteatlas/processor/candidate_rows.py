"""The stored row of a candidate, from its event."""

from __future__ import annotations

from typing import Any

from siteatlas.processor.documents import OpenedScan
from siteatlas.safe_text import storable
from siteatlas.scanner.events import CandidateJudged
from siteatlas.storage.hashes import url_hash


def candidate_row(event: CandidateJudged, scan: OpenedScan) -> dict[str, Any]:
    """The row of `candidates` for the verdict on a candidate of a scan."""
    url = storable(event.url)
    return {
        "domain_id": scan.domain_id,
        "url_hash": url_hash(url),
        "url": url,
        "method": event.method.value,
        "verdict": event.verdict.value,
        "reason": event.reason,
        "type": event.type.value if event.type else None,
        "http_status": event.http_status,
        "scan_id": scan.id,
    }
