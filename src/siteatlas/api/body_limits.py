"""Limits of a request body, checked before it is parsed: size, time, content type, strict JSON."""

from __future__ import annotations

import asyncio
import json
from email.message import Message as HeaderMessage

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import (
    BodyTooSlow,
    InputError,
    MediaTypeUnsupported,
    PayloadTooLarge,
)

KIB = 1024
BODY_BYTES = 16 * KIB
BODY_SECONDS = 10.0


class ClientGone(Exception):
    """The client went away before its request was complete."""


class RequestBodyLimits:
    """ASGI middleware that reads the whole body, which is small, and hands it on when it is good.

    Heavy work gives way to a request from then on: whoever is still sending waits for nobody.
    `larger` names the paths that may have a larger body, with their limit in bytes.
    """

    def __init__(
        self, app: ASGIApp, *, larger: dict[str, int], seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._larger = larger
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
            _check_json(headers.get(b"content-type", b""), body)
        with fair_loop().interactive():
            await self._app(scope, _replay(body, receive), send)


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
    """A channel that gives the body once and then goes on with the real one."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _check_json(content_type: bytes, body: bytes) -> None:
    header = HeaderMessage()
    header["content-type"] = content_type.decode("latin-1")
    if header.get_content_type() != "application/json":
        raise MediaTypeUnsupported
    try:
        orjson.loads(body)
        json.loads(body, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise InputError("The request body is not valid JSON.") from error


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InputError("The request body contains a field twice.")
    return found
