"""Renders the templates of the dashboard, and the responses that contain them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.types import Scope

from siteatlas import __version__
from siteatlas.access.authentication import AccessControl
from siteatlas.access.identity import identity_of
from siteatlas.access.keys import MAX_EXPIRY_DAYS
from siteatlas.access.scopes import Scope as AccessScope
from siteatlas.settings import MAX_INTERVAL_HOURS, MAX_PAGES, MIN_INTERVAL_HOURS
from siteatlas.web import charts, formatting
from siteatlas.web.static_files import STATIC

SEE_OTHER = 303
EMPTY: Mapping[str, str] = {}
# The bounds of the fields of forms.
LIMITS = {
    "pages": MAX_PAGES,
    "min_hours": MIN_INTERVAL_HOURS,
    "max_hours": MAX_INTERVAL_HOURS,
    "expiry_days": MAX_EXPIRY_DAYS,
}
NAVIGATION = (
    ("/", "Overview"),
    ("/domains", "Domains"),
    ("/changes", "Changes"),
    ("/problems", "Problems"),
    ("/jobs", "Jobs"),
    ("/webhooks", "Webhooks"),
    ("/system", "System"),
)
ADMIN_NAVIGATION = (("/keys", "Keys"),)


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
        "code_spans": formatting.code_spans,
        "number": formatting.number,
        "signed": formatting.signed,
        "size": formatting.size,
        "duration": formatting.duration,
        "exact": formatting.exact,
        "url_parts": formatting.url_parts,
        "tone": formatting.tone,
    }
    made.globals |= {
        "asset": asset,
        "charts": charts,
        "limits": LIMITS,
        "plural": formatting.plural,
        "navigation": NAVIGATION,
        "admin_navigation": ADMIN_NAVIGATION,
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
    """The text of a template, which knows its address and who looks at it."""
    viewer = identity_of(scope)
    known = {
        "path": scope["path"],
        "here": _address_of(scope),
        "viewer": viewer,
        "can_scan": viewer is not None and AccessScope.SCAN in viewer.scopes,
        "is_open_to_all": _is_open_to_all(scope["app"].state.access),
    }
    return environment().get_template(template).render(known | dict(values))


def _is_open_to_all(control: AccessControl) -> bool:
    """Whether the service was started without authentication and no key was made since."""
    return control.is_insecure and not control.installation.known


def next_href(path: str, cursor: str | None, kept: Mapping[str, str] = EMPTY) -> str | None:
    """The address of the next page of a list, with the filters to keep; None on the last one."""
    return f"{path}?{urlencode({**kept, 'cursor': cursor})}" if cursor else None


def redirect(location: str) -> RedirectResponse:
    """Lead to another page after a form was submitted."""
    return RedirectResponse(location, SEE_OTHER)


@cache
def asset(path: str) -> str:
    """The address of a static file; it changes with the content, so it may be cached forever."""
    digest = hashlib.sha256((STATIC / path).read_bytes()).hexdigest()[:12]
    return f"/static/{path}?v={digest}"


def when(moment: datetime | None, *, otherwise: str = formatting.NOTHING) -> Markup:
    """A relative time with the exact one as its tooltip."""
    if moment is None:
        return Markup("{}").format(otherwise)
    return Markup('<time datetime="{}" title="{}" data-relative>{}</time>').format(
        formatting.machine_time(moment),
        formatting.exact(moment),
        formatting.relative(moment, datetime.now(UTC)),
    )
