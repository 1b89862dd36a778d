"""Security headers that are added to every response."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
PERMISSIONS_POLICY = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()"
SECURITY_HEADERS: dict[bytes, bytes] = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    # With `no-referrer`, browsers send `Origin: null` with our own forms.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": PERMISSIONS_POLICY.encode(),
}
NO_STORE = (b"cache-control", b"no-store")


class SecurityHeaders:
    """ASGI middleware that adds the headers; `Cache-Control` only if a response has none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            """ASGI `send` that adds the security headers to the start of the response."""
            if message["type"] == "http.response.start":
                message["headers"] = _with_security_headers(message.get("headers", []))
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _with_security_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Set the security headers of a response, and `no-store` if it has no `Cache-Control`."""
    kept = [pair for pair in headers if pair[0].lower() not in SECURITY_HEADERS]
    cached = any(name.lower() == b"cache-control" for name, _ in kept)
    return [*kept, *SECURITY_HEADERS.items(), *([] if cached else [NO_STORE])]
