"""Siteatlas finds the sitemaps of any web site, stores every URL with its history, and watches."""

from __future__ import annotations

import importlib.metadata


def __getattr__(name: str) -> str:
    """The version, looked up only when somebody asks: it costs more than the rest of a start."""
    if name == "__version__":
        return importlib.metadata.version("siteatlas")
    raise AttributeError(name)
