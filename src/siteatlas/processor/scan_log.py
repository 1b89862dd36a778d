"""Logs what a scan has read, and counts it in the metrics of the process."""

from __future__ import annotations

from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.scanner.events import DocumentClosed, RobotsRead

log = get_logger("processor")


def log_robots(event: RobotsRead) -> None:
    """Log the request of robots.txt."""
    log.info(
        "robots_read",
        url=event.url,
        status=event.http_status,
        sitemaps=len(event.sitemap_urls),
        error_code=event.error_code,
    )


def log_and_count(event: DocumentClosed) -> None:
    """Log a document that the scan has read, and count it."""
    meters.documents[event.outcome.value] += 1
    if event.unchanged_by is not None:
        meters.unchanged_documents[event.unchanged_by.value] += 1
    meters.fetched_bytes += event.wire_bytes
    meters.fetch_duration.observe(event.seconds)
    log.info(
        "document_read",
        url=event.url,
        outcome=event.outcome.value,
        urls=event.entry_count,
        error_code=event.error_code,
        seconds=round(event.seconds, 3),
    )
