"""The outer border of one request: it gets an id, and whatever breaks inside becomes an answer."""

from __future__ import annotations

from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.api.problems import REQUEST_ID, problem, unexpected
from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger, job_context
from siteatlas.turns import turns

log = get_logger("api")


class RequestBorder:
    """ASGI middleware: request id, HEAD wherever there is GET, and problem details for errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        scope[REQUEST_ID] = request_id
        started = False
        head_only = scope["method"] == "HEAD"
        if head_only:
            scope["method"] = "GET"

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                pair = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", []), pair]
            elif head_only:
                message = {**message, "body": b""}
            await send(message)

        with job_context(request_id=request_id), turns().person():
            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:
                if started:
                    raise
                await _answer(error, scope)(scope, receive, send_with_id)


def _answer(error: Exception, scope: Scope) -> ASGIApp:
    if isinstance(error, SiteatlasError) and error.http_status != SiteatlasError.http_status:
        return problem(scope, error)
    log.error("request_failed", path=scope["path"], method=scope["method"], exc_info=error)
    return unexpected(scope)
