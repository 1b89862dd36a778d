"""Siteatlas finds the sitemaps of any web site, stores every URL with its history, and watches.

As a library: `from siteatlas import scan` or `scan_sync`; see `docs/how-to/use-it-as-a-library.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siteatlas.library import Entry as Entry
    from siteatlas.library import scan as scan
    from siteatlas.library import scan_sync as scan_sync

    __version__: str

# What is looked up only when somebody asks, since `import siteatlas` must cost nothing.
_LIBRARY = ("Entry", "scan", "scan_sync")


def __getattr__(name: str) -> Any:
    if name in _LIBRARY:
        return getattr(import_module("siteatlas.library"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("siteatlas")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LIBRARY, "__version__"]
