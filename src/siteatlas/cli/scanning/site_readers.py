"""The reader processes of `siteatlas scan`: how many there are, and what they do for a site."""

from __future__ import annotations

import os
from typing import NamedTuple

from siteatlas.cli.scanning.encoders import EntryEncoder
from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.cli.scanning.site_encoder import SiteEncoder
from siteatlas.scanner.crawl.reader_pool import ReaderPool, RemoteReaders

# Each takes 34 MB; with a second one, a scan would need all the memory that it may take.
USUAL_READERS = 1


class ScanReaders(NamedTuple):
    """The reader processes of one command, for all its sites."""

    pool: ReaderPool
    encode: EntryEncoder
    wanted: EntryFilter

    def of_site(self, site: str) -> RemoteReaders:
        """The reader processes for a scan of this site."""
        return RemoteReaders(self.pool, SiteEncoder(site, self.encode, self.wanted))


def reader_count(processes: int | None, max_urls: int | None) -> int:
    """How many processes may read documents beside the first one.

    None of them with `--max-urls`: they would read more than is wanted.
    """
    if max_urls is not None:
        return 0
    if processes is not None:
        return processes - 1
    return min(USUAL_READERS, _cores() - 1)


def _cores() -> int:
    """How many cores `siteatlas scan` may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
