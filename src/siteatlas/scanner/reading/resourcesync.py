"""ResourceSync (ANSI/NISO Z39.99): what the root of a document says about itself.

A ResourceSync document is a sitemap or an index with `<rs:md>` elements. That of the root names its
capability. `extensions.py` reads those of the entries.
"""

from __future__ import annotations

import re

NAMESPACE = "://www.openarchives.org/rs/terms"
# They list only what changed in a period, or the content of one archive.
WINDOWS = frozenset({"changelist", "changedump", "changedump-manifest", "resourcedump-manifest"})
# Their `<url>` elements are ResourceSync documents, not pages.
INDEXES = frozenset({"capabilitylist", "description"})
MISC = re.compile(r"\s*+(?:<\?.*?\?>|<!--.*?-->)", re.DOTALL)
TAG = re.compile(r"""\s*+</?+([^\s/>!?&<]++)([^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*)>""")
CAPABILITY = re.compile(r"""\scapability\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")


def read_capability(root_tag: str, rest: str) -> str | None:
    """The capability of a document; empty if it has none, None if more text is needed.

    Only links and comments may stand between the root's start tag and its `<rs:md>`.
    """
    if NAMESPACE not in root_tag:
        return ""
    position = 0
    while True:
        if match := MISC.match(rest, position):
            position = match.end()
            continue
        tag = TAG.match(rest, position)
        if tag is None:
            return None if rest[position:].lstrip()[:1] in ("", "<") else ""
        name = tag[1].rpartition(":")[2].lower()
        if name == "md":
            return _capability(tag[2])
        if name != "ln":
            return ""
        position = tag.end()


def _capability(attributes: str) -> str:
    """The capability in the attributes of an `<rs:md>` element; empty if there is none."""
    found = CAPABILITY.search(attributes)
    return (found[1] or found[2] or "").strip().lower() if found else ""
