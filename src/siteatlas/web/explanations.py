"""Why a scan failed or is partial, in sentences: what happened, and what to do about it.

What happened is the message of the error class; what to do is said here, for the codes that people
meet often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from siteatlas.errors import SiteatlasError
from siteatlas.scanner.problem_codes import ProblemCode

ADVICE = {
    "no_sitemap": "Open the site in a browser and look for a sitemap. If you know its address, "
    "submit that instead of the host.",
    "robots_unreachable": "Nothing is read until robots.txt can be fetched. Try again later, or "
    "set SITEATLAS_ROBOTS_UNREACHABLE=proceed.",
    "blocked": "The site blocks automated clients. Ask its operator to allow the user "
    "agent of this installation.",
    "rate_limited": "The site asked for a pause; the job continues by itself when it is over.",
    "dns_name_unknown": "Check the spelling of the host.",
    "truncated": "The transfer ended early. The next scan reads the document again.",
    "xml_malformed": "The document is read up to the error. Ask the site to correct it.",
    "payment_required": "The site requires payment from automated clients.",
    "timeout": "The site answered too slowly. Try again when it is less busy.",
    "egress_denied": "The address leads into a private network. If it is yours, add it to "
    "SITEATLAS_EGRESS_ALLOW.",
    "html_instead": "A web page was found where a sitemap should be. Check the address in "
    "robots.txt or in the index.",
    "url_limit": "Raise the limit of the scan, or SITEATLAS_MAX_URLS_PER_SCAN.",
    "too_many_entries": "The document is larger than the protocol allows. Ask the site to split "
    "it.",
}
SCAN_AGAIN = "Retry the job. If it fails again, the details below say where it stopped."


@dataclass(frozen=True, slots=True)
class Explanation:
    """A code with what it means and what to do."""

    code: str
    meaning: str
    advice: str


def explain(code: str | None) -> Explanation | None:
    """What an error code means; None without one."""
    if code is None:
        return None
    return Explanation(code, _meanings().get(code, code), ADVICE.get(code, SCAN_AGAIN))


@cache
def _meanings() -> dict[str, str]:
    """The message of every error class, and the description of every problem, by code."""
    known = {kind.code: kind.__doc__ or kind.code for kind in _all_errors(SiteatlasError)}
    described = {code.value: code.meaning for code in ProblemCode}
    return described | {code: " ".join(text.split()) for code, text in known.items()}


def _all_errors(kind: type[SiteatlasError]) -> list[type[SiteatlasError]]:
    """A class of errors with all classes below it."""
    return [kind, *(one for below in kind.__subclasses__() for one in _all_errors(below))]
