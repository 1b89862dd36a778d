"""What the codes of problems mean: the one place for their texts.

The command line explains them from here, and `docs/generate.py` writes problems.md from here.
Errors have texts of their own, in `errors.py`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

LEFT_OUT: Final = {
    "loc_missing": "an entry without a URL",
    "url_too_long": "a URL of more than 8,192 characters",
    "control_char": "a URL with a control character in it",
    "bad_unicode": "a URL with a replacement character or an invalid code point",
    "credentials": "a URL with a user name or password",
    "bad_url": "a URL that is not http or https, or has no usable host",
    "entry_malformed": "an entry lost because the XML around it is malformed",
}
KEPT: Final = {
    "relative_url": (
        "a relative URL, resolved against the address of the sitemap; left out in a local file, "
        "which has no address, and in a text list unless it begins with a slash or a dot"
    ),
    "several_locs": (
        "an entry with several `loc`; the first is kept for a page, all are read in an index"
    ),
    "entry_salvaged": "an entry recovered although the XML around it is malformed",
    "lastmod_invalid": "a `lastmod` that is not a date; the entry is kept without it",
    "lastmod_future": "a `lastmod` more than a day in the future",
    "changefreq_invalid": (
        "a `changefreq` that is not in the protocol; the entry is kept without it"
    ),
    "priority_invalid": (
        "a `priority` that is not a number from 0 to 1; the entry is kept without it"
    ),
    "duplicate_url": "a URL that the same document has listed before",
    "url_long": "a URL of 2,049 to 8,192 characters",
    "extras_cut": "images, videos or other [extras](extras.md) beyond their limits were dropped",
    "off_host": "a page on another site",
    "private_host": "a page whose host belongs to a private network",
    "scope": (
        "a page outside the directory of the sitemap, which search engines ignore unless "
        "robots.txt names the sitemap or an index above it"
    ),
}
DOCUMENT: Final = {
    "bare_ampersand": "an `&` that does not begin an entity; taken as `&amp;`",
    "html_entity": "an HTML entity such as `&nbsp;`; replaced by its character",
    "forbidden_char": "a character that XML forbids; replaced",
    "namespace": (
        "the root has a namespace, prefix or case other than that of the protocol, or a prefix is "
        "not declared"
    ),
    "doctype": "a document type declaration before the root",
    "leading_blanks": "whitespace before the XML declaration or the root",
    "content_after_end": "content after the end of the root",
    "encoding_not_utf8": "the document is encoded in something other than UTF-8",
    "encoding_lie": "the bytes are not in the encoding that the document names",
    "encoding_unknown": "the document names an unknown encoding",
    "encoding_conflict": (
        "byte order mark, XML declaration and HTTP header name different encodings"
    ),
    "gzip_trailing_garbage": "bytes after the last member of a gzip file",
    "duplicate_content": "another document of this scan has exactly the same bytes",
    "over_50000_entries": "more entries than the protocol allows; all are read, up to 250,000",
    "over_50_mib": "more bytes than the protocol allows; all are read, up to 100 MiB",
}
SCAN: Final = {
    "url_limit": "the requested number of URLs was reached; there may be more",
    "document_limit": "more than 10,000 documents in a scan, or 100,000 stored for the site",
    "depth_limit": "indexes nested deeper than 5",
    "cross_host_cap": "more than 20 documents on one foreign host",
    "robots_truncated": "robots.txt is longer than 500 KiB; the rest was not read",
    "sitemap_line_limit": "robots.txt names more than 10,000 sitemaps; the others were not read",
}
CANDIDATE: Final = {
    "soft_404": "the site answers this guess, and any other path, with a page",
    "duplicate": "it leads to a document that has already been read",
    "cross_host": "an index lists it on a foreign host that the site itself did not name",
    "robots_disallowed": "a guess that robots.txt does not allow",
    "unchanged": "the site reports that it has not changed; only library users request this so far",
    "done_before": "an earlier attempt at this scan has read it; seen by library users only",
}
MEANINGS: Final = MappingProxyType(LEFT_OUT | KEPT | DOCUMENT | SCAN)
