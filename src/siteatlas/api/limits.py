"""Limits of a request: the size of its head; size, time, content type and strict JSON of its body.

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

from siteatlas.access.identity import RequestKey
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
MAX_HEADER_BYTES = 32 * KIB
BODY_BYTES = 16 * KIB
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
NAME_END = re.compile(rb'"[ \t\r\n]*:')
JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


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
    if len(headers) > 100:
        raise HeadersTooLarge
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise HeadersTooLarge
    if {b"content-length", b"transfer-encoding"}.issubset(name for name, _ in headers):
        raise LengthAmbiguous


def _check_request_target(scope: Scope) -> None:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    if len(path) + len(query) > MAX_TARGET_BYTES:
        raise TargetTooLong
    # The framework looks through all parameters for each one that it does not know.
    if query.count(b"&") >= 64:
        raise TooManyParameters


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
        seconds: float = 10.0,
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
            scope[RequestKey.parsed_body] = _parse(content_type, body)
        elif _media_type(content_type) != FORM:
            raise MediaTypeUnsupported


def _check_announced(length: bytes | None, limit: int) -> None:
    if length is not None and (not length.isdigit() or int(length[:20]) > limit):
        raise PayloadTooLarge


async def _read_body(receive: Receive, limit: int) -> bytes:
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
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _parse(content_type: bytes, body: bytes) -> object:
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
        return (
            self.scope[RequestKey.parsed_body]
            if RequestKey.parsed_body in self.scope
            else await super().json()
        )


class ParsedBodyRoute(APIRoute):
    """A route whose body is the value that `RequestBodyLimits` has parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """The handler of the framework, with a request that does not parse its body again."""
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            return await handle(_ParsedRequest(request.scope, request.receive))

        return handle_parsed
