"""Detects the type of a document from its first text: a kind of sitemap, or something else.

Refuses documents that declare entities. Everything behind the root's start tag is `rest`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from siteatlas.errors import EmptyDocument, NotASitemap, XmlEntities
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.resourcesync import INDEXES, read_capability
from siteatlas.scanner.reading.tally import Tally
from siteatlas.scanner.reading.web_page import error_of_page

MAX_HEAD_CHARS = 256 * 1024
MAX_LINE_CHARS = 8192 + 64
BLANKS = re.compile(r"[\s\x00\ufeff]++")
MISC = re.compile(r"\s*+(?:<\?.*?\?>|<!--.*?-->)", re.DOTALL)
DOCTYPE = re.compile(
    r"""\s*+<!DOCTYPE\s++([^\s>\[]++)([^\[>"']*+(?:(?:"[^"]*+"|'[^']*+')[^\[>"']*+)*)(\[.*?\]\s*+)?>""",
    re.DOTALL | re.IGNORECASE,
)
ROOT = re.compile(r"""\s*+(<([^\s/>!?&<]++)[^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*>)""")
COMMENT_LINES = re.compile(r"(?:#[^\r\n]*+[\r\n]\s*+)*")
URL_LINE = re.compile(r"https?://[^\s<>]", re.IGNORECASE)
HTML_NAMES = frozenset(
    ("html", "head", "body", "title", "meta", "script", "style", "div", "p", "br")
)
NAMESPACE = re.compile(
    r"""\sxmlns\s*=\s*["']\s*https?://(?:www\.)?sitemaps\.org/schemas/sitemap/0\.9/?\s*["']"""
)
PROTOCOL_ROOTS = {"urlset": SitemapType.STANDARD, "sitemapindex": SitemapType.INDEX}
XML_TYPES = {
    **PROTOCOL_ROOTS,
    "rss": SitemapType.RSS,
    "rdf": SitemapType.RSS,
    "feed": SitemapType.ATOM,
}


@dataclass(frozen=True, slots=True)
class Head:
    """What a document is. `root_tag` is its start tag as written, empty for plain text.

    `capability` is that of a ResourceSync document, empty for any other.
    """

    type: SitemapType
    rest: str
    root_tag: str = ""
    capability: str = ""


class HeadReader:
    """Collects the first text of a document until it shows the head.

    Blanks in front of it are not kept, since there may be any number of them.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._content = ""
        self._has_blanks = False

    def feed(self, text: str, *, final: bool) -> Head | None:
        """The head of a document, or None if more text is needed; raises if it is no sitemap."""
        self._content += text if self._content else self._without_blanks(text)
        content = self._content
        if not content:
            if final:
                raise EmptyDocument
            return None
        if content[0] != "<":
            return _text_head(content, final=final)
        is_all = final or len(content) > MAX_HEAD_CHARS
        head = _xml_head(content, self._tally, is_all=is_all)
        if head is None and is_all:
            raise NotASitemap
        if head is not None and self._has_blanks:
            self._tally.note(ProblemCode.LEADING_BLANKS)
        return head

    def _without_blanks(self, text: str) -> str:
        """The text after the blanks at the start of the document."""
        blanks = BLANKS.match(text)
        self._has_blanks = self._has_blanks or blanks is not None
        return text[blanks.end() :] if blanks else text


def _text_head(content: str, *, final: bool) -> Head | None:
    """The head of a plain text sitemap; None if its first line is still incomplete."""
    comments = COMMENT_LINES.match(content, 0, MAX_HEAD_CHARS)
    lines = content[comments.end() :] if comments else content
    unfinished = "\n" not in lines and "\r" not in lines
    if not final and unfinished and len(lines) < MAX_LINE_CHARS:
        return None
    if not URL_LINE.match(lines):
        raise NotASitemap
    return Head(SitemapType.TEXT, lines)


def _xml_head(content: str, tally: Tally, *, is_all: bool) -> Head | None:
    """The head of an XML document; None if more text is needed, unless this is all there is."""
    position = 0
    doctypes = 0
    while True:
        if match := MISC.match(content, position):
            position = match.end()
        elif match := DOCTYPE.match(content, position):
            _check_doctype(match, content)
            doctypes += 1
            position = match.end()
        else:
            break
    root = ROOT.match(content, position)
    if root is None:
        _check_unfinished(content[position:].lstrip(), content)
        return None
    capability = read_capability(root[1], content[root.end() :])
    if capability is None and not is_all:
        return None
    if doctypes:
        tally.note(ProblemCode.DOCTYPE, doctypes)
    return _head_of_root(root, content, tally, capability or "")


def _check_doctype(match: re.Match[str], content: str) -> None:
    """Refuse a document whose DOCTYPE is HTML or declares entities."""
    if match[1].lower() == "html":
        raise error_of_page(content)
    if "<!entity" in (match[3] or "").lower():
        raise XmlEntities


def _check_unfinished(unread: str, content: str) -> None:
    """Refuse a document whose incomplete start already rules out a sitemap."""
    start = unread[:4096].lower()
    if start.startswith("<!doctype html"):
        raise error_of_page(content)
    if start.startswith("<!doctype") and "<!entity" in start:
        raise XmlEntities
    if re.match(r"<[^\w!?]", start):
        raise NotASitemap


def _head_of_root(root: re.Match[str], content: str, tally: Tally, capability: str) -> Head:
    """The head of an XML document with this root tag; raises if it is not a sitemap."""
    name = root[2].rpartition(":")[2].lower()
    if name in HTML_NAMES:
        raise error_of_page(content)
    kind = XML_TYPES.get(name)
    if kind is None:
        raise NotASitemap
    if name in PROTOCOL_ROOTS and (root[2] != name or not NAMESPACE.search(root[1])):
        tally.note(ProblemCode.NAMESPACE)
    if capability in INDEXES:
        kind = SitemapType.INDEX
    return Head(kind, content[root.end() :], root[1], capability)
