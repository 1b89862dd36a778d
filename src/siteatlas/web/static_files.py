"""Static files, and the API reference, which is a single static file."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from siteatlas.access.marks import PUBLIC, READ, AccessMark

STATIC = Path(__file__).parent / "static"
REVALIDATED = {"Cache-Control": "no-cache"}
IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
REFERENCE = "/docs"
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
    app.add_api_route(REFERENCE, show_reference, include_in_schema=False, dependencies=[READ])


async def show_reference() -> FileResponse:
    """The interactive reference; all its parts come from this process."""
    return FileResponse(STATIC / "docs.html", headers=REVALIDATED)
