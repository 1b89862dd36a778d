"""Static files, and pages that consist of a single static file."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
REVALIDATED = {"Cache-Control": "no-cache"}
REFERENCE = "/docs"
# What people open by following a link from anywhere.
PAGES = frozenset({"/", REFERENCE})


class RevalidatedFiles(StaticFiles):
    """Files that a browser may keep, but asks about each time, so that an update is seen."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve a static file with `Cache-Control: no-cache`."""
        response = await super().get_response(path, scope)
        response.headers.update(REVALIDATED)
        return response


def install_static_files(app: FastAPI) -> None:
    """Serve `/static` and the API reference at `/docs`, and redirect `/` to the latter."""
    app.mount("/static", RevalidatedFiles(directory=STATIC), name="static")
    app.add_api_route(REFERENCE, show_reference, include_in_schema=False)
    app.add_api_route("/", lead_to_reference, include_in_schema=False)


async def show_reference() -> FileResponse:
    """The interactive reference; all its parts come from this process."""
    return FileResponse(STATIC / "docs.html", headers=REVALIDATED)


async def lead_to_reference() -> RedirectResponse:
    """Redirect `/` to the API reference."""
    return RedirectResponse(REFERENCE, status_code=307)
