"""Limits of a request body: size, time, content type, strict JSON.

The body is parsed here and nowhere else: routes of the class `ParsedBodyRoute` get its value.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from email.message import Message as HeaderMessage

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.aio import fair_loop
from siteatlas.errors import (
    BodyTooSlow,
    HeadersTooLarge,
    InputError,
    LengthAmbiguous,
    MediaTypeUnsupported,
    PayloadTooLarge,
    TargetTooLong,
    TooManyParameters,
)

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


BODY_BYTES = 16 * KIB
BODY_SECONDS = 10.0
PARSED_BODY = "siteatlas.parsed_body"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
NAME_END = re.compile(rb'"[ \t\r\n]*:')
JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class RequestBodyLimits:
    """ASGI middleware that reads the whole body, which is small, and passes it on if it is valid.

    From then on, CPU-bound work yields to the request; it does not yield to a client that is still
    sending.
    `larger` maps the paths that may have a larger body to their limit in bytes. `takes_forms` tells
    the paths to which browsers send forms; all others take JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        larger: Mapping[str, int],
        takes_forms: Callable[[str], bool] = lambda _path: False,
        seconds: float = BODY_SECONDS,
    ) -> None:
        self._app = app
        self._larger = larger
        self._takes_forms = takes_forms
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        limit = self._larger.get(scope["path"], BODY_BYTES)
        _check_announced(headers.get(b"content-length"), limit)
        try:
            async with asyncio.timeout(self._seconds):
                body = await _read_body(receive, limit)
        except TimeoutError as error:
            raise BodyTooSlow from error
        except ClientGone:
            return
        if body:
            self._parse(scope, headers.get(b"content-type", b""), body)
        with fair_loop().interactive():
            await self._app(scope, _replay(body, receive), send)

    def _parse(self, scope: Scope, content_type: bytes, body: bytes) -> None:
        """Parse the body of a request for data; that of a form is left to its page."""
        if not self._takes_forms(scope["path"]):
            scope[PARSED_BODY] = _parse(content_type, body)
        elif _media_type(content_type) != FORM:
            raise MediaTypeUnsupported


def _check_announced(length: bytes | None, limit: int) -> None:
    """Refuse a request whose `Content-Length` is invalid or exceeds the limit of the body."""
    if length is not None and (not length.isdigit() or int(length[:20]) > limit):
        raise PayloadTooLarge


async def _read_body(receive: Receive, limit: int) -> bytes:
    """Read the whole request body; PayloadTooLarge as soon as it exceeds the limit in bytes."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise PayloadTooLarge
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that returns the body once and then continues with the real one."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        """ASGI `receive` that starts with the request body that was already read."""
        return waiting.pop() if waiting else await receive()

    return replay


def _parse(content_type: bytes, body: bytes) -> object:
    """Parse a request body as strict JSON; refuse other content types and repeated fields."""
    if _media_type(content_type) != JSON:
        raise MediaTypeUnsupported
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise InputError("The request body is not valid JSON.") from error
    if _names_twice(body, value):
        raise InputError("The request body names a field twice.")
    return value


def _media_type(content_type: bytes) -> str:
    """The media type in a `Content-Type` header, without its parameters."""
    header = HeaderMessage()
    header["content-type"] = content_type.decode("latin-1")
    return header.get_content_type()


def _names_twice(body: bytes, value: object) -> bool:
    """Whether an object of a valid JSON text has two fields of the same name.

    Each field has one colon outside of strings. Removing the strings takes longer than parsing, so
    that it is left out where counting all that looks like the end of a name is enough.
    """
    kept = _members_kept(value)
    return len(NAME_END.findall(body)) != kept and JSON_STRING.sub(b"", body).count(b":") != kept


def _members_kept(value: object) -> int:
    """How many fields are left in the value, where the last of equal names replaced the others."""
    count = 0
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            count += len(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return count


class _ParsedRequest(Request):
    async def json(self) -> object:
        """The request body for FastAPI, as the limits middleware has already parsed it."""
        return self.scope[PARSED_BODY] if PARSED_BODY in self.scope else await super().json()


class ParsedBodyRoute(APIRoute):
    """A route whose body is the value that `RequestBodyLimits` has parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """The handler of the framework, with a request that does not parse its body again."""
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            """Handle a request with the body that the middleware has parsed."""
            return await handle(_ParsedRequest(request.scope, request.receive))

        return handle_parsed
