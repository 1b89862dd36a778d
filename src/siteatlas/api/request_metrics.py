"""Counts and times HTTP requests by the template of their route, never by their path."""

from __future__ import annotations

from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.meters import meters

OTHER = "other"
NO_RESPONSE = "none"


class RequestMetrics:
    """ASGI middleware around all others, so that refused requests are counted too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = NO_RESPONSE

        async def send_and_note(message: Message) -> None:
            """ASGI `send` that records the status class of the response for the request metrics."""
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
    """Method and route template of a declared operation; all other requests are `other`."""
    route, method = scope.get("route"), scope["method"]
    if method in (getattr(route, "methods", None) or ()):
        return method, getattr(route, "path", OTHER)
    return OTHER, OTHER
