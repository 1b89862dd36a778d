"""Renders the templates of the dashboard, and the responses that contain them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from siteatlas import __version__
from siteatlas.access.authentication import AccessControl
from siteatlas.access.identity import identity_of
from siteatlas.access.keys import MAX_EXPIRY_DAYS
from siteatlas.access.keys import Scope as AccessScope
from siteatlas.access.limits import PUBLIC, READ, AccessMark
from siteatlas.scanner.problem_codes import meaning_of
from siteatlas.settings import MAX_INTERVAL_HOURS, MAX_PAGES, MIN_INTERVAL_HOURS
from siteatlas.web import charts

NOTHING = "\u2013"
MINUTE, HOUR, DAY = 60, 3_600, 86_400
STEP_OF_BYTES = 1_000
UNITS_OF_BYTES = ("B", "kB", "MB", "GB", "TB")
UNITS_OF_TIME = (("year", 365 * DAY), ("month", 30 * DAY), ("day", DAY), ("hour", HOUR))


@dataclass(frozen=True, slots=True)
class Tone:
    """How a state looks: the name of its colour, its sign and its word."""

    colour: str
    sign: str
    word: str


# Of jobs, scans, domains and documents; a word that is not listed is shown as it is.
TONES = {
    "pending": Tone("waiting", "◷", "waiting"),
    "processing": Tone("running", "◐", "running"),
    "running": Tone("running", "◐", "running"),
    "completed": Tone("good", "✓", "completed"),
    "complete": Tone("good", "✓", "complete"),
    "published": Tone("good", "✓", "completed"),
    "unchanged": Tone("good", "=", "unchanged"),
    "partial": Tone("warn", "!", "partial"),
    "cut": Tone("warn", "!", "truncated"),
    "limited": Tone("warn", "!", "limited"),
    "failed": Tone("bad", "✕", "failed"),
    "scan_failed": Tone("bad", "✕", "scan failed"),
    "domain_forgotten": Tone("bad", "✕", "site removed"),
    "unread": Tone("bad", "✕", "not read"),
    "cancelled": Tone("moved", "⊘", "cancelled"),
    "paused": Tone("waiting", "‖", "paused"),
    "never": Tone("waiting", "◷", "not scanned yet"),
    "accepted": Tone("good", "✓", "accepted"),
    "error": Tone("bad", "✕", "error"),
    "warning": Tone("warn", "!", "warning"),
    "note": Tone("moved", "i", "note"),
    "new": Tone("running", "+", "new"),
    "open": Tone("waiting", "·", "open"),
    "resolved": Tone("good", "✓", "resolved"),
    "rejected": Tone("waiting", "✕", "rejected"),
    "skipped": Tone("waiting", "⊘", "skipped"),
    "delivered": Tone("good", "✓", "delivered"),
    "failing": Tone("bad", "✕", "failing"),
    "disabled": Tone("waiting", "‖", "disabled"),
    "active": Tone("good", "✓", "active"),
    "expired": Tone("waiting", "⌛", "expired"),
    "revoked": Tone("moved", "⊘", "revoked"),
    "gone": Tone("bad", "✕", "gone"),
    "left_out": Tone("bad", "✕", "left out"),
    "kept": Tone("warn", "!", "kept"),
    "document": Tone("moved", "≡", "document"),
}


def tone(state: str | None) -> Tone:
    """How a state looks."""
    return TONES.get(state or "never", Tone("waiting", "·", str(state)))


def code_spans(text: str) -> Markup:
    """A sentence whose parts between backticks are code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def number(value: float | None) -> str:
    """A number in groups of three digits."""
    if value is None:
        return NOTHING
    return f"{value:,}".replace(",", "\u2009")


def signed(value: int) -> str:
    """A difference with its sign."""
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{number(abs(value))}"


def size(value: float | None) -> str:
    """A number of bytes in the largest unit that leaves a number above one."""
    if value is None:
        return NOTHING
    amount, units = float(value), iter(UNITS_OF_BYTES)
    unit = next(units)
    while amount >= STEP_OF_BYTES and unit != UNITS_OF_BYTES[-1]:
        amount, unit = amount / STEP_OF_BYTES, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """How long something took."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), MINUTE)
    if minutes < MINUTE:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, MINUTE)
    return f"{hours} h {minutes} min"


def relative(moment: datetime, now: datetime) -> str:
    """When something was or will be, from now; the page keeps it true by a script."""
    seconds = (moment - now).total_seconds()
    amount, unit = _largest_unit(abs(seconds))
    text = f"{amount} {unit}{'' if amount == 1 else 's'}"
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _largest_unit(seconds: float) -> tuple[int, str]:
    for unit, length in (*UNITS_OF_TIME, ("minute", MINUTE)):
        if seconds >= length:
            return round(seconds / length), unit
    return round(seconds), "second"


def exact(moment: datetime) -> str:
    """A moment in UTC, for the tooltip of a relative time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine_time(moment: datetime) -> str:
    """A moment for the attribute `datetime`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def url_parts(url: str) -> tuple[str, str]:
    """The origin of an address, which is shown dimmed, and the rest."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    return (origin, url[len(origin) :] or "/") if url.startswith(origin) else ("", url)


def plural(count: float, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


STATIC = Path(__file__).parent / "static"
REVALIDATED = {"Cache-Control": "no-cache"}
IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
# Paths of data, scripts and streams. All others are pages, which a link from anywhere may lead to.
NOT_PAGES = ("/api/", "/static/", "/health", "/metrics", "/events", "/openapi.json")


class VersionedFiles(StaticFiles):
    """Files that a browser may keep.

    An address with a version always has the same content; any other is revalidated each time,
    so that an update is seen. They are public: they hold code and no data.
    """

    access: AccessMark = PUBLIC.dependency

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve a static file with the `Cache-Control` of its address."""
        response = await super().get_response(path, scope)
        versioned = (
            scope["query_string"].startswith(b"v=") and response.status_code == HTTPStatus.OK
        )
        response.headers.update(IMMUTABLE if versioned else REVALIDATED)
        return response


def is_page(path: str) -> bool:
    """Whether people open this path by following a link."""
    return not path.startswith(NOT_PAGES)


def install_static_files(app: FastAPI) -> None:
    """Serve `/static`, and the API reference at `/docs`."""
    app.mount("/static", VersionedFiles(directory=STATIC), name="static")
    app.add_api_route("/docs", show_reference, include_in_schema=False, dependencies=[READ])


async def show_reference() -> FileResponse:
    """The interactive reference; all its parts come from this process."""
    return FileResponse(STATIC / "docs.html")


EMPTY: Mapping[str, str] = {}
# The bounds of the fields of forms.
LIMITS = {
    "pages": MAX_PAGES,
    "min_hours": MIN_INTERVAL_HOURS,
    "max_hours": MAX_INTERVAL_HOURS,
    "expiry_days": MAX_EXPIRY_DAYS,
}
# Address, name, and the key that leads there after `g`.
NAVIGATION = (
    ("/", "Overview", "o"),
    ("/domains", "Sites", "s"),
    ("/changes", "Changes", "c"),
    ("/findings", "Findings", "f"),
    ("/jobs", "Jobs", "j"),
    ("/webhooks", "Webhooks", "w"),
    ("/system", "System", "y"),
)


@cache
def environment() -> Environment:
    """The templates with their filters; made on first use."""
    made = Environment(
        loader=PackageLoader("siteatlas.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "code_spans": code_spans,
        "meaning": lambda code: meaning_of(code) or code,
        "number": number,
        "signed": signed,
        "size": size,
        "duration": duration,
        "exact": exact,
        "url_parts": url_parts,
        "tone": tone,
    }
    made.globals |= {
        "address": address,
        "asset": asset,
        "charts": charts,
        "limits": LIMITS,
        "plural": plural,
        "navigation": NAVIGATION,
        "admin_navigation": (("/keys", "Keys", "k"), ("/audit", "Audit trail", "a")),
        "version": __version__,
        "when": when,
    }
    return made


def render(
    request: Request, template: str, *, status_code: int = 200, **values: Any
) -> HTMLResponse:
    """A page, or the part of one that a template holds."""
    text = _rendered(template, request.scope, values)
    return HTMLResponse(text, status_code)


def ask(
    request: Request,
    question: str,
    consequence: str,
    back: str,
    *,
    action: str = "",
    fields: Iterable[tuple[str, str]] = (),
    sites: Sequence[str] = (),
) -> HTMLResponse:
    """The page that confirms, for those without a script, what cannot be undone.

    The form is sent again, to the same address or to `action`, with the field `confirmed`.
    """
    return render(
        request,
        "confirm.html",
        question=question,
        consequence=consequence,
        back=back,
        action=action or request.url.path,
        fields=fields,
        sites=sites,
    )


def render_error(scope: Scope, body: Mapping[str, Any]) -> str:
    """The page of a failed request; `body` are its problem details."""
    is_temporary = body["status"] == HTTPStatus.SERVICE_UNAVAILABLE and scope["method"] == "GET"
    return _rendered("error.html", scope, {"problem": body, "is_temporary": is_temporary})


def _address_of(scope: Scope) -> str:
    """The path and the query of a request. Two slashes would begin the name of a host."""
    query = scope["query_string"].decode("latin-1")
    path = "/" + quote(scope["path"]).lstrip("/")
    return f"{path}?{query}" if query else path


def _rendered(template: str, scope: Scope, values: Mapping[str, Any]) -> str:
    viewer = identity_of(scope)
    known = {
        "path": scope["path"],
        "here": _address_of(scope),
        "viewer": viewer,
        "can_scan": viewer is not None and AccessScope.SCAN in viewer.scopes,
        "notice": scope["app"].state.web.settings.notice,
        "is_open_to_all": _is_open_to_all(scope["app"].state.access),
    }
    return labelled_cells(environment().get_template(template).render(known | dict(values)))


_TABLE = re.compile(r'<table class="[^"]*\bcards\b.*?</table>', re.DOTALL)
_HEADER = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
# What is left is text, in which quotes are escaped already.
_MARKUP = re.compile(r'<span aria-hidden="true">.*?</span>|<[^>]*>', re.DOTALL)
_CELL = re.compile(r"<t[dh](?=[ >])")


def labelled_cells(page: str) -> str:
    """The page; in tables with the class `cards`, each cell has the name of its column.

    On a narrow screen, where a row is a card, the style sheet shows it before the value.
    """
    return _TABLE.sub(lambda table: _with_labels(table.group()), page)


def _with_labels(table: str) -> str:
    head, end, body = table.partition("</thead>")
    texts = (_MARKUP.sub("", text).strip() for text in _HEADER.findall(head))
    labels = [f' data-label="{text}"' if text else "" for text in texts]
    # The first column with a name is the title of the card.
    title = next((place for place, label in enumerate(labels) if label), None)
    if title is not None:
        labels[title] = ""
    before, *rows = body.split("<tr")
    return head + end + "<tr".join([before, *(_row_with_labels(row, labels) for row in rows)])


def _row_with_labels(row: str, labels: list[str]) -> str:
    if "colspan=" in row:
        return row
    following = iter(labels)
    return _CELL.sub(lambda cell: cell.group() + next(following, ""), row)


def _is_open_to_all(control: AccessControl) -> bool:
    return control.is_insecure and not control.installation.known


def address(path: str, kept: Mapping[str, object] = EMPTY, **changed: object) -> str:
    """The address of a page with its filters, some of them changed; empty ones are left out."""
    filters = {name: value for name, value in {**kept, **changed}.items() if value}
    return f"{path}?{urlencode(filters)}" if filters else path


def next_href(path: str, cursor: str | None, kept: Mapping[str, str] = EMPTY) -> str | None:
    """The address of the next page of a list, with the filters to keep; None on the last one."""
    return address(path, kept, cursor=cursor) if cursor else None


@dataclass(frozen=True, slots=True)
class SortLink:
    """The head of a column: where it leads, and how the list is sorted by it if it is."""

    href: str
    direction: str | None


def sort_links(
    path: str, kept: Mapping[str, str], sort: str, columns: Iterable[str]
) -> dict[str, SortLink]:
    """The heads of columns by what they sort by, each with the order that it begins with.

    That of the column in use turns its order round.
    """
    links = {}
    for first in columns:
        word, is_used = first.removeprefix("-"), sort.removeprefix("-") == first.removeprefix("-")
        other = word if sort.startswith("-") else f"-{word}"
        href = address(path, kept, sort=other if is_used else first)
        direction = "descending" if sort.startswith("-") else "ascending"
        links[word] = SortLink(href, direction if is_used else None)
    return links


def redirect(location: str) -> RedirectResponse:
    """Lead to another page after a form was submitted."""
    return RedirectResponse(location, 303)


@cache
def asset(path: str) -> str:
    """The address of a static file; it changes with the content, so it may be cached forever."""
    digest = hashlib.sha256((STATIC / path).read_bytes()).hexdigest()[:12]
    return f"/static/{path}?v={digest}"


def when(moment: datetime | None, *, otherwise: str = NOTHING) -> Markup:
    """A relative time with the exact one as its tooltip."""
    if moment is None:
        return Markup("{}").format(otherwise)
    return Markup('<time datetime="{}" title="{}" data-relative>{}</time>').format(
        machine_time(moment),
        exact(moment),
        relative(moment, datetime.now(UTC)),
    )


ADVICE = {
    "no_sitemap": "Open the site in a browser and look for a sitemap. If you know its address, "
    "submit that instead of the host.",
    "robots_unreachable": "Nothing is read until robots.txt can be fetched. Try again later, or "
    "set SITEATLAS_ROBOTS_UNREACHABLE=proceed.",
    "blocked": "The site blocks automated clients or requires a login. Ask its operator to allow "
    "the user agent of this installation, or set request headers in the settings of the site.",
    "header_not_sent": "Enter the headers of the site again, for the origin that it leads to.",
    "rate_limited": "The site asked for a pause; the job continues by itself when it is over.",
    "dns_name_unknown": "Check the spelling of the host.",
    "truncated": "If the transfer ended early, the next scan reads the document again. If the file "
    "itself ends in the middle, have the site generate its sitemap again.",
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
    return Explanation(code, meaning_of(code) or code, ADVICE.get(code, SCAN_AGAIN))
