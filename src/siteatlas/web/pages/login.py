"""The login page: a form for an access key. `access.login` takes what it sends."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.login import LOGIN, safe_path
from siteatlas.access.marks import PUBLIC
from siteatlas.errors import KeyInvalid, error_classes
from siteatlas.web.templating import render

MESSAGES = {kind.code: kind().message for kind in error_classes()}

router = APIRouter(include_in_schema=False)


@router.get(LOGIN, dependencies=[PUBLIC], response_class=HTMLResponse)
async def show_login(
    request: Request,
    error: Annotated[str, Query(max_length=64)] = "",
    next: Annotated[str, Query(max_length=2048)] = "/",
) -> Response:
    """The form, with what was wrong with the key that was entered before."""
    fault = MESSAGES.get(error, KeyInvalid().message) if error else ""
    return render(request, "login.html", fault=fault, destination=safe_path(next))
