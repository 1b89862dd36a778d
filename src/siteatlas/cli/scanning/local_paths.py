"""Which targets of `siteatlas scan` are local files. `targets.py` turns all others into sites."""

from __future__ import annotations

import os
from pathlib import Path

from siteatlas.errors import InputError

SITEMAP_ENDINGS = (".xml", ".gz", ".txt", ".rss", ".atom")
PATH_STARTS = ("./", "../", "/", "~/")


def local_path(text: str) -> Path | None:
    """The local file that a target of `siteatlas scan` names; None if it names a site.

    A path is a file, and so is the bare name of one that exists. A directory is refused, unless
    its bare name may be a site: mirrors are kept in folders such as `example.com`.
    """
    is_path = text.startswith(PATH_STARTS)
    path = Path(text).expanduser() if is_path else Path(text)
    if (is_path or "." not in text.strip(".")) and text and os.path.isdir(path):  # noqa: PTH112
        raise InputError(f"{text} is a directory, not a file.")
    # Unlike its counterpart in pathlib, this does not raise for a name that is too long.
    return path if is_path or os.path.isfile(path) else None  # noqa: PTH113


def may_be_site(text: str) -> bool:
    """Whether a target of `siteatlas scan` that is a file could also be the name of a site."""
    is_file_only = text.startswith(PATH_STARTS) or text.lower().endswith(SITEMAP_ENDINGS)
    return "." in text and not is_file_only
