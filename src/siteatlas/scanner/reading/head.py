"""Detects the type of a document from its first text: a kind of sitemap, or something else.

Refuses documents that declare entities. Everything behind the root's start tag is `rest`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, cast

from lxml import etree

from siteatlas.errors import (
    Blocked,
    EmptyDocument,
    HtmlInstead,
    NotASitemap,
    ScanError,
    XmlEntities,
)
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import Tally
from siteatlas.text import DISRUPTIVE, INVISIBLE

LXML_KEY = "_ParserDictionaryContext"


class NameDictionary:
    """Of one document; whatever lxml does for that document must be done inside `with`.

    lxml frees the names of a document by the dictionary that it finds, so that a call outside, of
    which there must be none, would end the process.
    """

    def __init__(self) -> None:
        self._own: object | None = None
        self._outer: object | None = None

    def __enter__(self) -> None:
        self._outer = _exchange(self._own)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._own = _exchange(self._outer)
        self._outer = None


def _exchange(new: object | None) -> object | None:
    """Put an object in the place of the one that lxml has; None makes lxml create a new one."""
    values = _thread_values()
    old = values.pop(LXML_KEY, None)
    if new is not None:
        values[LXML_KEY] = new
    return old


# A function type of our own: the attributes of `ctypes.pythonapi` are shared with other users.
_thread_dict_address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(
    ("PyThreadState_GetDict", ctypes.pythonapi)
)


def _thread_values() -> dict[str, object]:
    """The dictionary in which extension modules keep what belongs to this thread.

    Asked for each time: a reference that is kept would keep all of it after the thread has ended.
    """
    values: dict[str, object] = ctypes.cast(_thread_dict_address(), ctypes.py_object).value
    return values


MAX_TITLE_CHARS = 80
_replace_unshowable = re.compile(rf"[{DISRUPTIVE}{INVISIBLE}\u200c\u200d\ufffd]+").sub
_find_challenge = re.compile(
    r"captcha|just a moment|attention required|checking your browser|robot check|bot check"
    r"|security check|access denied|(?:verify|confirm|prove) (?:that )?you(?:'re| are) (?:a )?human"
    r"|are you (?:a )?human|ddos protection",
    re.IGNORECASE,
).search


class Tag(NamedTuple):
    """The start of an element: its name and its attributes, both in lower case."""

    name: str
    attributes: Mapping[str, str]

    @property
    def attribute_chars(self) -> int:
        """Length of the attributes of a tag in a web page, without white space and quotes."""
        return sum(len(name) + len(value) for name, value in self.attributes.items())


class WebPage(NamedTuple):
    """Some tags of a page in their order, except those that are too long, and its title.

    The title is empty if there is none. `is_challenge` if the page asks visitors to prove that they
    are human.
    """

    tags: list[Tag]
    title: str
    is_challenge: bool


class _PageTarget:
    """The parser target for a web page: collects some of its tags, and the first title.

    No tree is built: for an element with thousands of attributes that would take seconds.
    """

    def __init__(self, names: Container[str] = ()) -> None:
        self._names = names
        self._title_ended = False
        self._in_title = False
        self._title: list[str] = []
        self.tags: list[Tag] = []

    @property
    def title(self) -> str:
        return "".join(self._title)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._in_title = name == "title" and not self._title_ended
        if name in self._names:
            self.tags.append(Tag(name, dict(attributes)))

    def data(self, text: str) -> None:
        if self._in_title:
            self._title.append(text)

    def end(self, name: str) -> None:
        self._title_ended = self._title_ended or name == "title"
        self._in_title = False

    def close(self) -> None:
        """End a document that is a web page, not a sitemap; lxml requires this method."""


def _parse_page(page: str, names: Container[str] = ()) -> _PageTarget:
    found = _PageTarget(names)
    with NameDictionary():
        _feed_page(page, found)
    return found


def _feed_page(page: str, target: _PageTarget) -> None:
    """Parse a web page, inside the dictionary of the page; the parser is gone at the end."""
    # The type stubs require a method for comments; lxml does not.
    parser = etree.HTMLParser(target=cast("Any", target), encoding="utf-8")
    try:
        with suppress(etree.XMLSyntaxError):
            parser.feed(page.encode("utf-8", "replace"))
            parser.close()
    finally:
        # The traceback of an exception would keep it.
        del parser


def read_page(page: str, *names: str) -> WebPage:
    """Parse a page once; `names` are those of the tags to return."""
    found = _parse_page(page, names)
    tags = [tag for tag in found.tags if tag.attribute_chars <= 4096]
    title = _shown(found.title[:1000])
    return WebPage(tags, title, _is_challenge(page, title))


def _shown(title: str) -> str:
    text = " ".join(_replace_unshowable(" ", title).split())
    return text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1] + "…"


def error_of_page(page: str) -> ScanError:
    """The error that a web page means where a sitemap was expected."""
    found = read_page(page)
    if found.is_challenge:
        return Blocked("The site shows a browser challenge instead of the document.")
    if not found.title:
        return HtmlInstead()
    return HtmlInstead(
        f"The site answered with a web page, titled “{found.title}”, where a sitemap was expected."
    )


def _is_challenge(page: str, title: str) -> bool:
    signs = (
        "_cf_chl_opt",
        "cf-browser-verification",
        "px-captcha",
        "captcha-delivery.com",
        "/_Incapsula_Resource?SWUDNSAI",
        "sgcaptcha",
        "gokuProps",
    )
    return any(sign in page for sign in signs) or _find_challenge(title) is not None


# They list only what changed in a period, or the content of one archive.
WINDOWS = frozenset({"changelist", "changedump", "changedump-manifest", "resourcedump-manifest"})
# Their `<url>` elements are ResourceSync documents, not pages.
INDEXES = frozenset({"capabilitylist", "description"})
_match_misc = re.compile(r"\s*+(?:<\?.*?\?>|<!--.*?-->)", re.DOTALL).match
_match_tag = re.compile(
    r"""\s*+</?+([^\s/>!?&<]++)([^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*)>"""
).match
_find_capability = re.compile(r"""\scapability\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""").search


def read_capability(root_tag: str, rest: str) -> str | None:
    """The capability of a document; empty if it has none, None if more text is needed.

    Only links and comments may stand between the root's start tag and its `<rs:md>`.
    """
    if "://www.openarchives.org/rs/terms" not in root_tag:
        return ""
    position = 0
    while True:
        if match := _match_misc(rest, position):
            position = match.end()
            continue
        tag = _match_tag(rest, position)
        if tag is None:
            return None if rest[position:].lstrip()[:1] in ("", "<") else ""
        name = tag[1].rpartition(":")[2].lower()
        if name == "md":
            return _capability(tag[2])
        if name != "ln":
            return ""
        position = tag.end()


def _capability(attributes: str) -> str:
    found = _find_capability(attributes)
    return (found[1] or found[2] or "").strip().lower() if found else ""


MAX_HEAD_CHARS = 256 * 1024
_match_blanks = re.compile(r"[\s\x00\ufeff]++").match
_match_doctype = re.compile(
    r"""\s*+<!DOCTYPE\s++([^\s>\[]++)([^\[>"']*+(?:(?:"[^"]*+"|'[^']*+')[^\[>"']*+)*)(\[.*?\]\s*+)?>""",
    re.DOTALL | re.IGNORECASE,
).match
_match_root = re.compile(
    r"""\s*+(<([^\s/>!?&<]++)[^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*>)"""
).match
_match_comment_lines = re.compile(r"(?:#[^\r\n]*+[\r\n]\s*+)*").match
_match_url_line = re.compile(r"https?://[^\s<>]", re.IGNORECASE).match
# With the prefix that stands for it.
_find_namespaces = re.compile(
    r"""\sxmlns(?::([\w.-]+))?\s*=\s*["']\s*https?://(?:www\.)?sitemaps\.org/schemas/sitemap/0\.9/?\s*["']"""
).findall
XML_TYPES = {
    "urlset": SitemapType.STANDARD,
    "sitemapindex": SitemapType.INDEX,
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
        blanks = _match_blanks(text)
        self._has_blanks = self._has_blanks or blanks is not None
        return text[blanks.end() :] if blanks else text


def _text_head(content: str, *, final: bool) -> Head | None:
    comments = _match_comment_lines(content, 0, MAX_HEAD_CHARS)
    lines = content[comments.end() :] if comments else content
    unfinished = "\n" not in lines and "\r" not in lines
    # The longest URL, with some room for blanks.
    if not final and unfinished and len(lines) < 8192 + 64:
        return None
    if not _match_url_line(lines):
        raise NotASitemap
    return Head(SitemapType.TEXT, lines)


def _xml_head(content: str, tally: Tally, *, is_all: bool) -> Head | None:
    """The head of an XML document; None if more text is needed, unless this is all there is."""
    position = 0
    doctypes = 0
    while True:
        if match := _match_misc(content, position):
            position = match.end()
        elif match := _match_doctype(content, position):
            _check_doctype(match, content)
            doctypes += 1
            position = match.end()
        else:
            break
    root = _match_root(content, position)
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
    if match[1].lower() == "html":
        raise error_of_page(content)
    if "<!entity" in (match[3] or "").lower():
        raise XmlEntities


def _check_unfinished(unread: str, content: str) -> None:
    start = unread[:4096].lower()
    if start.startswith("<!doctype html"):
        raise error_of_page(content)
    if start.startswith("<!doctype") and "<!entity" in start:
        raise XmlEntities
    if re.match(r"<[^\w!?]", start):
        raise NotASitemap


def _head_of_root(root: re.Match[str], content: str, tally: Tally, capability: str) -> Head:
    prefix, _, written = root[2].rpartition(":")
    name = written.lower()
    if name in {"html", "head", "body", "title", "meta", "script", "style", "div", "p", "br"}:
        raise error_of_page(content)
    kind = XML_TYPES.get(name)
    if kind is None:
        raise NotASitemap
    is_protocol = name in {"urlset", "sitemapindex"}
    if is_protocol and (written != name or prefix not in _find_namespaces(root[1])):
        tally.note(ProblemCode.NAMESPACE)
    if capability in INDEXES:
        kind = SitemapType.INDEX
    return Head(kind, content[root.end() :], root[1], capability)
