"""The layers around all routes: request ids and errors, metrics, compression, and ETags.

`RequestBoundary` assigns an id to every request and turns every exception into a response.
"""

from __future__ import annotations

import re
from time import perf_counter
from uuid import uuid4

import xxhash
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.access.identity import RequestKey
from siteatlas.api.problems import problem, unexpected
from siteatlas.errors import SiteatlasError
from siteatlas.logs import Throttle, get_logger, job_context
from siteatlas.meters import meters

# Of a tag, what is compared: `W/` says that it is weak. It may contain commas.
_OPAQUE_TAG = re.compile(r'(?:W/)?("[^"]*")')

log = get_logger("api")


class RequestBoundary:
    """ASGI middleware: request id, HEAD wherever there is GET, and problem details for errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refusals = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        scope[RequestKey.request_id] = request_id
        started = False
        head_only = scope["method"] == "HEAD"
        if head_only:
            scope["method"] = "GET"
            scope[RequestKey.head_only] = True

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._log_refusal(scope, message["status"])
                pair = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", []), pair]
            elif head_only:
                message = {**message, "body": b""}
            await send(message)

        with job_context(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:
                if started:
                    raise
                await _error_response(error, scope)(scope, receive, send_with_id)

    def _log_refusal(self, scope: Scope, status: int) -> None:
        if status in range(400, 500) and (left_out := self._refusals.admit()) is not None:
            log.info(
                "request_refused",
                method=scope["method"],
                path=scope["path"][:200],
                # An HTTPStatus would be logged as `<HTTPStatus.NOT_FOUND: 404>`.
                status=int(status),
                error=scope.get(RequestKey.error_code),
                left_out=left_out,
            )


def _error_response(error: Exception, scope: Scope) -> ASGIApp:
    if isinstance(error, SiteatlasError) and error.http_status != SiteatlasError.http_status:
        return problem(scope, error)
    log.error("request_failed", path=scope["path"], method=scope["method"], exc_info=error)
    return unexpected(scope)


class RequestMetrics:
    """ASGI middleware around all others, so that refused requests are counted too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = "none"

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
            await send(message)

        started = perf_counter()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            method, route = _labels(scope)
            meters.observe_request(method, route, status, perf_counter() - started)


def _labels(scope: Scope) -> tuple[str, str]:
    route, method = scope.get("route"), scope["method"]
    if method in (getattr(route, "methods", None) or ()):
        return method, getattr(route, "path", "other")
    return "other", "other"


class Compression:
    """ASGI middleware: gzip, if the client accepts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        # The fastest level: it runs on the event loop, and JSON and HTML shrink well at any level.
        self._compressed = GZipMiddleware(app, minimum_size=1_024, compresslevel=1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _stays_plain(scope):
            await self._compressed(scope, receive, send)
        else:
            await self._plain(scope, receive, send)


def _stays_plain(scope: Scope) -> bool:
    return (
        scope["path"].startswith(("/events", "/metrics", "/static/vendor/swagger-ui/"))
        or b"format=parquet" in scope["query_string"]
    )


def entity_tag(*parts: object) -> str:
    """The ETag of a response that depends on nothing but these values."""
    text = "\x1f".join(map(str, parts))
    return f'"{xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether a client has the response with this ETag, by its `If-None-Match` (RFC 9110, 13.1.2).

    Tags are compared weakly, because a proxy that compresses responses makes them weak.
    """
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag in _OPAQUE_TAG.findall(if_none_match)
