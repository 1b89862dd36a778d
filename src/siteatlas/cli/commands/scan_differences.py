"""`siteatlas compare SITE --from SCAN --to SCAN`: what differs between two scans of a site."""

from __future__ import annotations

from collections import Counter

from siteatlas.cli.terminal.change_lines import URL_KINDS
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.output import print_message, url_lines, write_bytes
from siteatlas.cli.terminal.paged_list import read_pages
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.pages import Page
from siteatlas.insights.scan_comparison import ComparedEntry, compare_scans
from siteatlas.settings import Settings
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.session import get_session


async def print_scan_differences(settings: Settings, site: str, scans: tuple[int, int]) -> None:
    """Print each entry that differs between two scans with a sign; the counts go to stderr."""
    counts = Counter[str]()
    async with opened(settings):
        async with get_session() as session, session.begin():
            domain_id = (await find_domain_view(session, site)).id

        async def fetch(limit: int, cursor: str | None) -> Page[ComparedEntry]:
            """Read one page of differences for `siteatlas compare`."""
            async with get_session() as session, session.begin():
                return await compare_scans(session, domain_id, scans, limit=limit, cursor=cursor)

        async for page in read_pages(fetch, None, None):
            counts.update(entry.kind for entry in page.items)
            write_bytes(url_lines([_difference_line(entry) for entry in page.items]))
    words = ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
    print_message(f"{words}." if words else "The scans do not differ.")


def _difference_line(entry: ComparedEntry) -> str:
    """One difference as a line of `siteatlas compare`, with the sign of its kind."""
    sign = URL_KINDS[entry.kind][0]
    details = f" ({', '.join(entry.fields)})" if entry.kind == ChangeKind.CHANGED else ""
    return f"{sign} {entry.url}{details}"
