"""Limits of a request head, checked before routing: length, parameters, headers.

Each check is linear in the size of the head, which the server in front limits to about 64 KiB.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from siteatlas.errors import HeadersTooLarge, LengthAmbiguous, TargetTooLong, TooManyParameters

KIB = 1024
MAX_TARGET_BYTES = 8 * KIB
MAX_PARAMETERS = 64
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * KIB
LENGTHS = {b"content-length", b"transfer-encoding"}


class RequestHeadLimits:
    """ASGI middleware that refuses heads beyond the limits, or with two lengths of the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _check_request_headers(scope["headers"])
            _check_request_target(scope)
        await self._app(scope, receive, send)


def _check_request_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a request whose header fields are too many, too large or contradictory."""
    if len(headers) > MAX_HEADERS:
        raise HeadersTooLarge
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise HeadersTooLarge
    if LENGTHS.issubset(name for name, _ in headers):
        raise LengthAmbiguous


def _check_request_target(scope: Scope) -> None:
    """Refuse a request whose path and query are too long or have too many parameters."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    if len(path) + len(query) > MAX_TARGET_BYTES:
        raise TargetTooLong
    # The framework looks through all parameters for each one that it does not know.
    if query.count(b"&") >= MAX_PARAMETERS:
        raise TooManyParameters
