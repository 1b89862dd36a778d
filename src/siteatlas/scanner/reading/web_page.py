"""Web pages that stand where something else was expected: what they say, and who they keep out."""

from __future__ import annotations

import html
import re

from siteatlas.control_characters import DISRUPTIVE, INVISIBLE
from siteatlas.errors import Blocked, HtmlInstead, ScanError

MAX_TITLE_CHARS = 80
TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
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


def title_of(page: str) -> str:
    """The title of a page as one short line that is safe to show; empty when there is none."""
    match = TITLE.search(page)
    text = html.unescape(match[1]) if match else ""
    text = " ".join(UNSHOWABLE.sub(" ", text).split())
    return text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1] + "…"


def is_challenge(page: str) -> bool:
    """Whether a page asks its reader to prove that he is a person."""
    signs = any(sign in page for sign in CHALLENGE_SIGNS)
    return signs or CHALLENGE_TITLE.search(title_of(page)) is not None


def error_of_page(page: str) -> ScanError:
    """The error that a web page means where a sitemap was expected."""
    if is_challenge(page):
        return Blocked("The site shows a browser challenge instead of the document.")
    title = title_of(page)
    if not title:
        return HtmlInstead()
    return HtmlInstead(
        f"The site answered with a web page, titled “{title}”, where a sitemap was expected."
    )
