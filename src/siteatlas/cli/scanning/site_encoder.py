"""What a reader process of `siteatlas scan` does with the entries of a site.

It is sent to the process, which then imports this module; so this imports nothing of the network.
"""

from __future__ import annotations

from siteatlas.cli.scanning.encoders import EntryEncoder
from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.scanner.events import EncodedEntries, EntriesRead


class SiteEncoder:
    """Filters and encodes entries of one site as `ScanRunner` does, in a reader process."""

    def __init__(self, site: str, encode: EntryEncoder, wanted: EntryFilter) -> None:
        self._site = site
        self._encode = encode
        self._wanted = wanted

    def __call__(self, event: EntriesRead) -> EncodedEntries:
        undated_before = self._wanted.undated
        columns = self._wanted.apply(event.columns)
        return EncodedEntries(
            data=self._encode(self._site, EntriesRead(event.url, columns)),
            found=len(event.columns),
            kept=len(columns),
            dated=len(columns) - columns.lastmods.count(None),
            undated=self._wanted.undated - undated_before,
        )
