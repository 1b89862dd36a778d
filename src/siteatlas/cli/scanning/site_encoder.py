"""What a reader process of `siteatlas scan` does with the entries of a site.

It is sent to the process, which then imports this module; so this imports nothing of the network.
"""

from __future__ import annotations

from dataclasses import dataclass

from siteatlas.cli.scanning.encoders import EntryEncoder
from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.scanner.events import EncodedEntries, EntriesRead


@dataclass(frozen=True, slots=True)
class SiteEncoder:
    """Filters and encodes entries of one site as `ScanRunner` does, in a reader process."""

    site: str
    encode: EntryEncoder
    wanted: EntryFilter

    def __call__(self, event: EntriesRead) -> EncodedEntries:
        undated_before = self.wanted.undated
        columns = self.wanted.apply(event.columns)
        return EncodedEntries(
            data=self.encode(self.site, EntriesRead(event.url, columns)),
            found=len(event.columns),
            kept=len(columns),
            dated=len(columns) - columns.lastmods.count(None),
            undated=self.wanted.undated - undated_before,
        )
