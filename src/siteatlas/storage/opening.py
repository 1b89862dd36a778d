"""The former import path of `open_storage`, kept for programs that use it."""

from __future__ import annotations

from siteatlas.storage.startup import open_storage

__all__ = ["open_storage"]
