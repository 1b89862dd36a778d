"""Log in with an access key, and log out: what the forms send. The page itself is `web`'s."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from siteatlas.access.authentication import AccessControl, identify_by_key, identify_sender
from siteatlas.access.browser_sessions import (
    clear_session_cookie,
    end_all_sessions,
    end_session,
    open_session,
    session_token,
    set_session_cookie,
)
from siteatlas.access.identity import IDENTITY
from siteatlas.access.marks import PUBLIC
from siteatlas.errors import AccessError, KeyRequired

LOGIN = "/login"
LOGOUT = "/logout"
HOME = "/"
MAX_FIELDS = 10

router = APIRouter(include_in_schema=False)


@router.post(LOGIN, dependencies=[PUBLIC])
async def log_in(request: Request) -> Response:
    """Open a session for the key in the form, and go on to the page that was asked for.

    With a key that is not valid, or that has been used too often, go back to the form with the
    code of the error.
    """
    control: AccessControl = request.app.state.access
    form = await _form_fields(request)
    destination = safe_path(form.get("next", [HOME])[-1])
    try:
        identity = await identify_by_key(
            form.get("key", [""])[-1].strip(), request.scope, control.limits
        )
        await control.limits.count_request(identity, is_read=False)
    except AccessError as error:
        parameters = urlencode({"error": error.code, "next": destination})
        return RedirectResponse(f"{LOGIN}?{parameters}", status_code=303)
    request.scope[IDENTITY] = identity
    response = RedirectResponse(destination, status_code=303)
    is_tls = control.front.uses_tls(request.scope)
    set_session_cookie(response, await open_session(identity), is_tls=is_tls)
    return response


@router.post(LOGOUT, dependencies=[PUBLIC])
async def log_out(request: Request) -> Response:
    """End the session of this browser; with the field `all`, all sessions of its user."""
    control: AccessControl = request.app.state.access
    is_tls = control.front.uses_tls(request.scope)
    token = session_token(request.scope, is_tls=is_tls)
    if token is not None:
        await _end(request, control, token, everywhere="all" in await _form_fields(request))
    response = RedirectResponse(LOGIN, status_code=303)
    clear_session_cookie(response, is_tls=is_tls)
    return response


async def _end(request: Request, control: AccessControl, token: str, *, everywhere: bool) -> None:
    """End one session, or all sessions of its user if it is still valid."""
    try:
        identity = await identify_sender(request.scope, control, is_closed=True)
    except KeyRequired:
        return
    request.scope[IDENTITY] = identity
    if everywhere:
        await end_all_sessions(identity)
    await end_session(token)


async def _form_fields(request: Request) -> dict[str, list[str]]:
    """The fields of a login or logout form; none if there are too many."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}


def safe_path(text: str) -> str:
    """A path on this service to go on to after the login; the front page for anything else."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_path and not text.startswith((LOGIN, LOGOUT)) else HOME
