"""Compresses answers, pages, scripts and exports of text for clients that ask for it.

The event stream, the metrics and Parquet stay as they are, and so do the files of the API
reference, which are too large to be compressed for every request. No page shows a secret beside
what its address contains, so the size of a compressed page tells nothing.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

UNCOMPRESSED = ("/events", "/metrics", "/static/vendor/swagger-ui/")
PARQUET = b"format=parquet"
MIN_BYTES = 1_024
# The fastest level: it runs on the event loop, and JSON and HTML shrink well at any level.
LEVEL = 1


class Compression:
    """ASGI middleware: gzip, if the client accepts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _stays_plain(scope):
            await self._compressed(scope, receive, send)
        else:
            await self._plain(scope, receive, send)


def _stays_plain(scope: Scope) -> bool:
    return scope["path"].startswith(UNCOMPRESSED) or PARQUET in scope["query_string"]
