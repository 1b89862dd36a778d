"""Siteatlas finds the sitemaps of any site, stores every URL, and rescans the site on a schedule.

As a library: `from siteatlas import scan` or `scan_sync`; see `docs/how-to/use-it-as-a-library.md`.
"""

from __future__ import annotations

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from siteatlas.errors import AddressError as AddressError
    from siteatlas.errors import Blocked as Blocked
    from siteatlas.errors import EgressDenied as EgressDenied
    from siteatlas.errors import InputError as InputError
    from siteatlas.errors import NoSitemap as NoSitemap
    from siteatlas.errors import PartialScan as PartialScan
    from siteatlas.errors import RateLimited as RateLimited
    from siteatlas.errors import ScanError as ScanError
    from siteatlas.errors import SiteatlasError as SiteatlasError
    from siteatlas.library import AsyncScan as AsyncScan
    from siteatlas.library import Entry as Entry
    from siteatlas.library import PartialScanWarning as PartialScanWarning
    from siteatlas.library import ScanReport as ScanReport
    from siteatlas.library import SyncScan as SyncScan
    from siteatlas.library import scan as scan
    from siteatlas.library import scan_sync as scan_sync

    __version__: str

__all__ = [
    "AddressError",
    "AsyncScan",
    "Blocked",
    "EgressDenied",
    "Entry",
    "InputError",
    "NoSitemap",
    "PartialScan",
    "PartialScanWarning",
    "RateLimited",
    "ScanError",
    "ScanReport",
    "SiteatlasError",
    "SyncScan",
    "__version__",
    "scan",
    "scan_sync",
]

# Imported lazily, because `import siteatlas` must be cheap.
_LIBRARY = frozenset(
    {"AsyncScan", "Entry", "PartialScanWarning", "ScanReport", "SyncScan", "scan", "scan_sync"}
)


def __getattr__(name: str) -> _typing.Any:
    if name == "__version__":
        return _import_module("importlib.metadata").version("siteatlas")
    if name in _LIBRARY:
        return getattr(_import_module("siteatlas.library"), name)
    if name in __all__:
        return getattr(_import_module("siteatlas.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
