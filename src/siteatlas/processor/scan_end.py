"""What the end of a scan proves: whether it covered the site and saw all names of documents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing

from siteatlas.errors import NoSitemap
from siteatlas.processor.batch_writer import FinishedScan
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.fenced_steps import FencedSteps
from siteatlas.processor.removals import RemovalRules
from siteatlas.processor.settlement import ScanEnd
from siteatlas.scanner.events import DocumentProbe
from siteatlas.scanner.problem_codes import ProblemCode, ProblemGroup

SCAN_LIMITS = frozenset(code.value for code in ProblemCode if code.group is ProblemGroup.SCAN)

RequestDocuments = Callable[[Iterable[str]], AsyncGenerator[DocumentProbe, None]]


def end_of_scan(
    steps: FencedSteps,
    scan: OpenedScan,
    finished: FinishedScan,
    rules: RemovalRules,
    request_documents: RequestDocuments,
    failure: NoSitemap | None,
) -> ScanEnd:
    """What the end of a scan depends on besides its rows."""
    met_no_limit = not SCAN_LIMITS.intersection(finished.reasons)
    covers_site = steps.claim.document is None and met_no_limit
    robots_read = any(robots.error_code is None for robots in finished.robots)

    async def probe(urls: Iterable[str]) -> AsyncIterator[DocumentProbe]:
        async with aclosing(request_documents(urls)) as answers:
            async for answer in answers:
                steps.activity.record_event()
                yield answer

    return ScanEnd(
        scan,
        rules,
        probe,
        is_full=covers_site and failure is None,
        sees_all_names=covers_site and robots_read,
        failure=failure,
    )
