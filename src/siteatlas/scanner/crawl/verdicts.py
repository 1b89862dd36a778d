"""The verdicts on candidates, as events of the scan."""

from __future__ import annotations

from siteatlas.errors import SiteatlasError
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.fetched_document import FetchedDocument
from siteatlas.scanner.events import CandidateJudged, Emit, Verdict
from siteatlas.scanner.problem_codes import ProblemCode


async def emit_verdict(
    emit: Emit,
    candidate: CrawlCandidate,
    verdict: Verdict,
    reason: ProblemCode | SiteatlasError | None,
    *,
    reading: FetchedDocument | None = None,
) -> None:
    """Emit the verdict on a candidate; children of an index only have one if skipped."""
    if candidate.is_child and verdict is not Verdict.SKIPPED:
        return
    reader = reading.reader if reading else None
    await emit(
        CandidateJudged(
            url=candidate.address.url,
            method=candidate.method,
            verdict=verdict,
            reason=_verdict_reason(reason),
            http_status=reading.http_status if reading else None,
            type=reader.type if reader else reading.type if reading else None,
            final_url=reading.redirected_to if reading else None,
        )
    )


def _verdict_reason(reason: ProblemCode | SiteatlasError | None) -> str | None:
    """The code in the verdict on a candidate of the crawl."""
    if isinstance(reason, SiteatlasError):
        return reason.code
    return None if reason is None else reason.value
