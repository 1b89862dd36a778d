"""CORS for the origins in the settings, with access keys only: two layers around the routes.

The outer one adds headers to every response, so that pages can read those of errors too. The inner
one answers preflights, whose heads have been checked like those of other requests.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
REQUEST_HEADERS = ("Authorization", "Content-Type", "If-None-Match")
# What pages of other origins may read of a response, besides what browsers always show them.
EXPOSED_HEADERS = (
    "Content-Disposition",
    "ETag",
    "Location",
    "Retry-After",
    "Siteatlas-As-Of-Seq",
    "Siteatlas-Feed-Id",
    "Siteatlas-Schema",
    "X-Request-Id",
)


class CrossOriginHeaders(CORSMiddleware):
    """ASGI middleware that adds headers to responses; those of preflights have theirs."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.simple_response(scope, receive, send, request_headers=Headers(scope=scope))
        else:
            await self.app(scope, receive, send)

    async def send(self, message: Message, send: Send, request_headers: Headers) -> None:
        """Send a message, with the headers if it begins a response that has none of them."""
        names = {name for name, _ in message.get("headers", ())}
        if b"access-control-allow-methods" in names:
            await send(message)
        else:
            await super().send(message, send, request_headers)


class Preflights(CORSMiddleware):
    """ASGI middleware that answers preflights and leaves everything else as it is."""

    async def simple_response(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_headers: Headers,  # noqa: ARG002 the signature of the framework
    ) -> None:
        """Leave the headers of the response to the outer layer."""
        await self.app(scope, receive, send)


def cross_origin_headers(origins: str) -> list[Middleware]:
    """The outer layer for a comma-separated list of origins; none without any."""
    return _layer(CrossOriginHeaders, origins)


def preflights(origins: str) -> list[Middleware]:
    """The inner layer."""
    return _layer(Preflights, origins)


def _layer(kind: type[CORSMiddleware], origins: str) -> list[Middleware]:
    """A layer for these origins; none without any."""
    if not origins:
        return []
    layer = Middleware(
        kind,
        allow_origins=origins.split(","),
        allow_methods=METHODS,
        allow_headers=REQUEST_HEADERS,
        expose_headers=EXPOSED_HEADERS,
    )
    return [layer]
