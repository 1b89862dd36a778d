"""The codes of problems and what they mean: the one place for both.

The scanner counts problems by these codes, the command line and the API explain them from here, and
`docs/generate.py` writes problems.md from here. Errors have codes and texts of their own, in
`siteatlas.errors`.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from functools import cache
from typing import Self

from siteatlas.errors import error_classes


class ProblemGroup(Enum):
    """What a problem is about."""

    LEFT_OUT = auto()
    KEPT = auto()
    DOCUMENT = auto()
    SCAN = auto()
    CANDIDATE = auto()


class ProblemCode(StrEnum):
    """A problem of an entry, a document or a scan, or the reason why a candidate is not read.

    The value is stored and shown; `meaning` explains it, in Markdown.
    """

    _value_: str
    group: ProblemGroup
    meaning: str

    def __new__(cls, code: str, group: ProblemGroup, meaning: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.group = group
        member.meaning = meaning
        return member

    LOC_MISSING = ("loc_missing", ProblemGroup.LEFT_OUT, "an entry without a URL")
    URL_TOO_LONG = ("url_too_long", ProblemGroup.LEFT_OUT, "a URL of more than 8,192 characters")
    CONTROL_CHAR = (
        "control_char",
        ProblemGroup.LEFT_OUT,
        "a URL that contains a control character",
    )
    BAD_UNICODE = (
        "bad_unicode",
        ProblemGroup.LEFT_OUT,
        "a URL that contains a replacement character or an invalid code point",
    )
    CREDENTIALS = (
        "credentials",
        ProblemGroup.LEFT_OUT,
        "a URL that contains a user name or password",
    )
    BAD_URL = (
        "bad_url",
        ProblemGroup.LEFT_OUT,
        "a URL that is not http or https, has no usable host, or is a placeholder",
    )
    ENTRY_MALFORMED = (
        "entry_malformed",
        ProblemGroup.LEFT_OUT,
        "an entry that was lost because the XML around it is malformed",
    )

    RESOURCE_DELETED = (
        "resource_deleted",
        ProblemGroup.LEFT_OUT,
        "an entry of a ResourceSync change list that says that the page was deleted",
    )

    RELATIVE_URL = (
        "relative_url",
        ProblemGroup.KEPT,
        (
            "a relative URL, resolved against the URL of the sitemap, or one of its host without a "
            "scheme, which gets that of the sitemap; left out in a local file, "
            "which has no URL, and in a text list unless it starts with a slash or a dot"
        ),
    )
    SEVERAL_LOCS = (
        "several_locs",
        ProblemGroup.KEPT,
        "an entry with several `loc` elements; only the first counts for a page, all in an index",
    )
    ENTRY_SALVAGED = (
        "entry_salvaged",
        ProblemGroup.KEPT,
        "an entry that was recovered although the XML around it is malformed",
    )
    LASTMOD_INVALID = (
        "lastmod_invalid",
        ProblemGroup.KEPT,
        "a `lastmod` that is not a date; the entry is kept without it",
    )
    LASTMOD_FUTURE = (
        "lastmod_future",
        ProblemGroup.KEPT,
        "a `lastmod` more than a day in the future",
    )
    CHANGEFREQ_INVALID = (
        "changefreq_invalid",
        ProblemGroup.KEPT,
        "a `changefreq` that the protocol does not define; the entry is kept without it",
    )
    PRIORITY_INVALID = (
        "priority_invalid",
        ProblemGroup.KEPT,
        "a `priority` that is not a number from 0 to 1; the entry is kept without it",
    )
    DUPLICATE_URL = (
        "duplicate_url",
        ProblemGroup.KEPT,
        (
            "a URL that the same document has already listed; `siteatlas scan` and the library "
            "count it each time, the service once"
        ),
    )
    URL_LONG = ("url_long", ProblemGroup.KEPT, "a URL of 2,049 to 8,192 characters")
    EXTRAS_CUT = (
        "extras_cut",
        ProblemGroup.KEPT,
        "images, videos or other [extras](extras.md) that were dropped because of a limit",
    )
    OFF_HOST = ("off_host", ProblemGroup.KEPT, "a page on another site")
    PRIVATE_HOST = (
        "private_host",
        ProblemGroup.KEPT,
        "a page whose host belongs to a private network",
    )
    SCOPE = (
        "scope",
        ProblemGroup.KEPT,
        (
            "a page outside the directory of the sitemap; search engines ignore such pages unless "
            "robots.txt names the sitemap or an index above it"
        ),
    )

    BARE_AMPERSAND = (
        "bare_ampersand",
        ProblemGroup.DOCUMENT,
        "an `&` that does not start an entity; read as `&amp;`",
    )
    HTML_ENTITY = (
        "html_entity",
        ProblemGroup.DOCUMENT,
        "an HTML entity such as `&nbsp;`; replaced with its character",
    )
    FORBIDDEN_CHAR = (
        "forbidden_char",
        ProblemGroup.DOCUMENT,
        "a character that XML does not allow; it was replaced",
    )
    NAMESPACE = (
        "namespace",
        ProblemGroup.DOCUMENT,
        (
            "the namespace or case of the root element differs from the protocol, or a prefix is "
            "not declared"
        ),
    )
    DOCTYPE = (
        "doctype",
        ProblemGroup.DOCUMENT,
        "a document type declaration before the root element",
    )
    LEADING_BLANKS = (
        "leading_blanks",
        ProblemGroup.DOCUMENT,
        "whitespace before the XML declaration or the root element",
    )
    CONTENT_AFTER_END = (
        "content_after_end",
        ProblemGroup.DOCUMENT,
        "content after the end of the root element",
    )
    ENCODING_NOT_UTF8 = (
        "encoding_not_utf8",
        ProblemGroup.DOCUMENT,
        "the document is not encoded in UTF-8",
    )
    ENCODING_LIE = (
        "encoding_lie",
        ProblemGroup.DOCUMENT,
        "the document is not in the encoding that it declares",
    )
    ENCODING_UNKNOWN = (
        "encoding_unknown",
        ProblemGroup.DOCUMENT,
        "the document declares an unknown encoding",
    )
    ENCODING_CONFLICT = (
        "encoding_conflict",
        ProblemGroup.DOCUMENT,
        "the byte order mark, XML declaration and HTTP header disagree about the encoding",
    )
    GZIP_TRAILING_GARBAGE = (
        "gzip_trailing_garbage",
        ProblemGroup.DOCUMENT,
        "bytes after the last member of a gzip file",
    )
    DUPLICATE_CONTENT = (
        "duplicate_content",
        ProblemGroup.DOCUMENT,
        "another document in this scan has exactly the same bytes",
    )
    OVER_50000_ENTRIES = (
        "over_50000_entries",
        ProblemGroup.DOCUMENT,
        "more entries than the protocol allows; all are read, up to 250,000",
    )
    OVER_50_MIB = (
        "over_50_mib",
        ProblemGroup.DOCUMENT,
        "more bytes than the protocol allows; all are read, up to 100 MiB",
    )

    URL_LIMIT = (
        "url_limit",
        ProblemGroup.SCAN,
        "the requested number of URLs was reached; there may be more",
    )
    DOCUMENT_LIMIT = (
        "document_limit",
        ProblemGroup.SCAN,
        "more than 10,000 documents in a scan, or 100,000 stored for the site",
    )
    DEPTH_LIMIT = ("depth_limit", ProblemGroup.SCAN, "indexes nested more than 5 levels deep")
    CROSS_HOST_CAP = (
        "cross_host_cap",
        ProblemGroup.SCAN,
        "more than 20 documents on one foreign registrable domain, or 200 on all foreign hosts",
    )
    ROBOTS_TRUNCATED = (
        "robots_truncated",
        ProblemGroup.SCAN,
        "robots.txt is over 500 KiB or has too many similar wildcard rules; the rest is ignored",
    )
    SITEMAP_LINE_LIMIT = (
        "sitemap_line_limit",
        ProblemGroup.SCAN,
        "robots.txt names more than 10,000 sitemaps; the rest were not read",
    )
    SITEMAPS_FILTERED = (
        "sitemaps_filtered",
        ProblemGroup.SCAN,
        "the scan was requested with a filter for the children of indexes; others were not read",
    )

    SOFT_404 = (
        "soft_404",
        ProblemGroup.CANDIDATE,
        "the site returns a page for this common path, and for any other path",
    )
    DUPLICATE = (
        "duplicate",
        ProblemGroup.CANDIDATE,
        "it leads to a document that has already been read",
    )
    CROSS_HOST = (
        "cross_host",
        ProblemGroup.CANDIDATE,
        "an index lists it on a foreign host that the site itself did not name",
    )
    ROBOTS_DISALLOWED = (
        "robots_disallowed",
        ProblemGroup.CANDIDATE,
        "a common path that robots.txt disallows",
    )
    UNCHANGED = (
        "unchanged",
        ProblemGroup.CANDIDATE,
        "it has not changed since it was last read: the site says so, or its bytes are the same",
    )
    DONE_BEFORE = (
        "done_before",
        ProblemGroup.CANDIDATE,
        "an earlier attempt of this scan has already read it; seen only by library users",
    )
    FILTERED_ADDRESS = (
        "filtered_address",
        ProblemGroup.CANDIDATE,
        "an index lists it, and the filter of the scan leaves it out by its address",
    )
    FILTERED_DATE = (
        "filtered_date",
        ProblemGroup.CANDIDATE,
        "an index lists it with a `lastmod` before the date from which the scan reads sitemaps",
    )
    NOT_ASKED = (
        "not_asked",
        ProblemGroup.CANDIDATE,
        "the scan ended before it requested the document",
    )
    NOT_FETCHED = (
        "not_fetched",
        ProblemGroup.CANDIDATE,
        "a local file lists it; the children of a local index are not fetched",
    )

    @classmethod
    def of(cls, group: ProblemGroup) -> list[ProblemCode]:
        """The codes of one group, in the order of the reference."""
        return [code for code in cls if code.group is group]


_meanings = {
    code.value: code.meaning for code in ProblemCode if code.group is not ProblemGroup.CANDIDATE
}


def meaning_of_problem(code: str) -> str | None:
    """What the code of a problem means; None for one that this version does not know."""
    return _meanings.get(code)


@cache
def _all_meanings() -> dict[str, str]:
    errors = {error.code: error().message for error in reversed(error_classes())}
    return errors | {code.value: code.meaning for code in ProblemCode}


def meaning_of(code: str) -> str | None:
    """What the code of a problem, a candidate or an error means, in Markdown; None if unknown."""
    return _all_meanings().get(code)
