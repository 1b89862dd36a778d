"""Compresses the answers of the API for clients that ask for it.

Pages and files are not compressed: a page is small, and Parquet is compressed already.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/api/"
PARQUET = b"format=parquet"
MIN_BYTES = 1_024
# The fastest level: it runs on the event loop, and JSON shrinks well at any level.
LEVEL = 1


class ApiCompression:
    """ASGI middleware: gzip for the answers of the API, if the client accepts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        of_api = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        if of_api and PARQUET not in scope["query_string"]:
            await self._compressed(scope, receive, send)
        else:
            await self._plain(scope, receive, send)
