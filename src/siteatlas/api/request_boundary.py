"""The outermost layer of a request: assigns an id and turns every exception into a response."""

from __future__ import annotations

from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.api.problems import ERROR_CODE, HEAD_ONLY, REQUEST_ID, problem, unexpected
from siteatlas.errors import SiteatlasError
from siteatlas.logs import Throttle, get_logger, job_context

CLIENT_ERRORS = range(400, 500)
LOGGED_CHARACTERS = 200

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
        scope[REQUEST_ID] = request_id
        started = False
        head_only = scope["method"] == "HEAD"
        if head_only:
            scope["method"] = "GET"
            scope[HEAD_ONLY] = True

        async def send_with_id(message: Message) -> None:
            """ASGI `send` that adds the request id, and omits the body of the response to HEAD."""
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
        """Log a refused request, at a limited rate."""
        if status in CLIENT_ERRORS and (left_out := self._refusals.admit()) is not None:
            log.info(
                "request_refused",
                method=scope["method"],
                path=scope["path"][:LOGGED_CHARACTERS],
                # An HTTPStatus would be logged as `<HTTPStatus.NOT_FOUND: 404>`.
                status=int(status),
                error=scope.get(ERROR_CODE),
                left_out=left_out,
            )


def _error_response(error: Exception, scope: Scope) -> ASGIApp:
    """The problem response for an exception that escaped the application; logs unexpected ones."""
    if isinstance(error, SiteatlasError) and error.http_status != SiteatlasError.http_status:
        return problem(scope, error)
    log.error("request_failed", path=scope["path"], method=scope["method"], exc_info=error)
    return unexpected(scope)
