"""Web pages: their tags and titles, and what a page means where a sitemap was expected.

Which links of a home page lead to sitemaps is decided in `discovery/home_page.py`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from lxml import etree

from siteatlas.errors import Blocked, HtmlInstead, ScanError
from siteatlas.safe_text import DISRUPTIVE, INVISIBLE
from siteatlas.scanner.reading.name_dictionary import NameDictionary

MAX_TITLE_CHARS = 80
MAX_TITLE_LOOK_CHARS = 1000
MAX_TAG_CHARS = 4096
UNSHOWABLE = re.compile(rf"[{DISRUPTIVE}{INVISIBLE}\u200c\u200d\ufffd]+")
CHALLENGE_TITLE = re.compile(
    r"captcha|just a moment|attention required|checking your browser|robot check|bot check"
    r"|security check|access denied|(?:verify|confirm|prove) (?:that )?you(?:'re| are) (?:a )?human"
    r"|are you (?:a )?human|ddos protection",
    re.IGNORECASE,
)
CHALLENGE_SIGNS = (
    "_cf_chl_opt",
    "cf-browser-verification",
    "px-captcha",
    "captcha-delivery.com",
    "/_Incapsula_Resource?SWUDNSAI",
    "sgcaptcha",
    "gokuProps",
)


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
        """The title of the web page, as written."""
        return "".join(self._title)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Collect a start tag of a document that is a web page, not a sitemap; called by lxml."""
        self._in_title = name == "title" and not self._title_ended
        if name in self._names:
            self.tags.append(Tag(name, dict(attributes)))

    def data(self, text: str) -> None:
        """Collect the title of a document that is a web page, not a sitemap; called by lxml."""
        if self._in_title:
            self._title.append(text)

    def end(self, name: str) -> None:
        """End the title of a document that is a web page, not a sitemap; called by lxml."""
        self._title_ended = self._title_ended or name == "title"
        self._in_title = False

    def close(self) -> None:
        """End a document that is a web page, not a sitemap; lxml requires this method."""


def _parse_page(page: str, names: Container[str] = ()) -> _PageTarget:
    """The named tags and the title of a document that is a web page, not a sitemap."""
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
    tags = [tag for tag in found.tags if tag.attribute_chars <= MAX_TAG_CHARS]
    title = _shown(found.title[:MAX_TITLE_LOOK_CHARS])
    return WebPage(tags, title, _is_challenge(page, title))


def _shown(title: str) -> str:
    """The title of a web page as one short line that is safe to show."""
    text = " ".join(UNSHOWABLE.sub(" ", title).split())
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
    """Whether the content or title of a web page is that of a bot challenge."""
    signs = any(sign in page for sign in CHALLENGE_SIGNS)
    return signs or CHALLENGE_TITLE.search(title) is not None
