"""The one-shot scan client behind `siteatlas scan`: targets, formats, live view."""

from __future__ import annotations
