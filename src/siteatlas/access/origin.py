"""Where a request comes from and goes to: hosts, origins, proxies, and the headers of browsers.

Without access keys (local mode), only requests from and to this machine are served. A page of
another site in the operator's browser can reach a loopback port, but cannot forge `Host`, `Origin`
and `Sec-Fetch-*`, so these are checked; programs send no `Sec-Fetch-*`. With access keys, any
`Host` is served unless the public address is configured. Pages of other origins are refused all the
same, because a browser may have a session; those in the settings get CORS, with access keys only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Self

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siteatlas.errors import HostRefused, OriginRefused
from siteatlas.settings import UNIX_PROXY, Settings

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
# The values of `Host` that lead to this machine whatever DNS says; no other site has them.
# The port may differ from ours, behind a tunnel or if another server runs the application.
LOOPBACK = re.compile(
    rb"(localhost|127(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE
)
FORWARDING_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
# Added to every response.
SECURITY_HEADERS: dict[bytes, bytes] = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    # With `no-referrer`, browsers send `Origin: null` with our own forms.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": (
        b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=()"
    ),
}

HSTS = (b"strict-transport-security", b"max-age=31536000")


def header_values(scope: Scope, name: bytes) -> list[bytes]:

    return [value for key, value in scope["headers"] if key == name]


def is_navigation(scope: Scope) -> bool:
    """Whether a browser loads a whole page, after a link was followed or an address entered."""
    return (
        scope["method"] in SAFE_METHODS
        and header_values(scope, b"sec-fetch-mode") == [b"navigate"]
        # The whole tab, not a frame, an image or a script.
        and header_values(scope, b"sec-fetch-dest") == [b"document"]
    )


@dataclass(frozen=True, slots=True)
class BrowserPages:
    """To which paths links of other sites may lead."""

    is_page: Callable[[str], bool] = lambda _path: False

    def check_fetch_site(self, scope: Scope) -> None:
        """Refuse what a page of another site asks for, unless it is a link to one of our pages."""
        sites = header_values(scope, b"sec-fetch-site")
        is_own = {b"same-origin", b"none"}.issuperset(site.lower() for site in sites)
        if not is_own and not (self.is_page(scope["path"]) and is_navigation(scope)):
            raise OriginRefused


class LocalMode:
    """Refuses foreign hosts and origins, while the installation has no access keys.

    `host` and `port` are what the service was bound to. Port 0 stands for any free port: then the
    server says which one it became.
    """

    def __init__(self, pages: BrowserPages, *, host: str, port: int) -> None:
        self._pages = pages
        self._names = ("localhost", "127.0.0.1", "[::1]", *_further_name(host))
        self._port = port
        self._hosts: dict[int, frozenset[bytes]] = {}

    def check(self, scope: Scope) -> None:
        """Raise HostRefused or OriginRefused for a request that local mode does not serve."""
        if not _is_over_loopback(scope):
            raise HostRefused("The connection was not made from a loopback address.")
        # A proxy on this machine would open the service to everyone, under any `Host`.
        if any(header_values(scope, name) for name in FORWARDING_HEADERS):
            raise HostRefused("A service behind a proxy needs an access key.")
        hosts = self.own_hosts(scope)
        given = header_values(scope, b"host")
        if len(given) != 1 or not (given[0].lower() in hosts or LOOPBACK.fullmatch(given[0])):
            raise _refused_host(given, min(hosts))
        # A page on another port is of another origin.
        hosts |= {given[0].lower()}
        for origin in header_values(scope, b"origin"):
            scheme, _, host = origin.lower().partition(b"://")
            if scheme != b"http" or host not in hosts:
                raise OriginRefused
        self._pages.check_fetch_site(scope)

    def own_hosts(self, scope: Scope) -> frozenset[bytes]:
        """The `Host` values under which the service can be reached locally, for the port in use."""
        port = self._port or (scope.get("server") or ("", 0))[1] or 80
        if port not in self._hosts:
            hosts = {f"{name}:{port}".encode() for name in self._names}
            if port == 80:  # the port that a browser leaves out
                hosts.update(name.encode() for name in self._names)
            self._hosts[port] = frozenset(hosts)
        return self._hosts[port]


def _refused_host(given: list[bytes], expected: bytes) -> HostRefused:
    came = ", ".join(host[:100].decode("latin-1") for host in given) or "missing"
    return HostRefused(
        f"The Host header must be {expected.decode()}, the address of this service, but is {came}. "
        "A reverse proxy must pass on the one that it received, with its port."
    )


def _further_name(host: str) -> tuple[str, ...]:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return ()
    return (str(address),) if address.is_loopback and address.version == 4 else ()


def _is_over_loopback(scope: Scope) -> bool:
    """Whether the connection was accepted on a loopback address.

    Other servers than ours may listen anywhere, and a program can send any `Host`. What is no
    address, such as the path of a Unix socket, is local.
    """
    try:
        address = ip_address(str((scope.get("server") or ("",))[0]))
    except ValueError:
        return True
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The reverse proxies whose forwarded headers are used; those of others are ignored."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    over_socket: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the setting; it has been checked."""
        parts = set(filter(None, map(str.strip, text.split(","))))
        networks = tuple(ip_network(part) for part in parts - {UNIX_PROXY})
        return cls(networks, over_socket=UNIX_PROXY in parts)

    def client_address(self, scope: Scope) -> str:
        """The address of the client: the last one that no trusted proxy has."""
        client = str((scope.get("client") or ("",))[0])
        hops = b",".join(header_values(scope, b"x-forwarded-for")).decode("latin-1").split(",")
        for hop in reversed([hop.strip() for hop in hops]):
            if not hop or not self.trusts(client):
                break
            client = hop
        return client[:64]

    def is_over_tls(self, scope: Scope) -> bool:
        """Whether the client uses TLS, as far as a trusted proxy or the server says."""
        forwarded = header_values(scope, b"x-forwarded-proto")
        if forwarded and self.trusts(str((scope.get("client") or ("",))[0])):
            return forwarded[-1].strip().lower() == b"https"
        return bool(scope.get("scheme") == "https")

    def trusts(self, address: str) -> bool:
        if not address:  # a connection over a Unix socket
            return self.over_socket
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(plain in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Front:
    """Where a closed installation is reached, and whose pages may use it."""

    local: LocalMode
    pages: BrowserPages = BrowserPages()
    public_url: str = ""
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    cors_origins: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, settings: Settings, local: LocalMode, pages: BrowserPages) -> Self:
        """The front that the settings describe."""
        return cls(
            local,
            pages,
            settings.public_url,
            TrustedProxies.parse(settings.trusted_proxies),
            frozenset(part.encode() for part in settings.cors_origins.split(",") if part),
        )

    def check(self, scope: Scope) -> None:
        """Raise HostRefused or OriginRefused for a foreign host, or a page of a foreign origin."""
        hosts = header_values(scope, b"host")
        if len(hosts) != 1 or not self._serves(hosts[0].lower(), scope):
            raise _refused_host(hosts, self._public_host)
        if self.is_cross_origin(scope):
            return
        for origin in header_values(scope, b"origin"):
            if not self._is_own_origin(origin.lower(), hosts[0].lower()):
                raise OriginRefused
        self.pages.check_fetch_site(scope)

    def is_cross_origin(self, scope: Scope) -> bool:
        """Whether the request comes from a page of an origin that the operator has allowed."""
        origins = header_values(scope, b"origin")
        return len(origins) == 1 and origins[0].lower() in self.cors_origins

    def uses_tls(self, scope: Scope) -> bool:
        """Whether the browser speaks TLS, so that its cookies may be limited to it."""
        return self.public_url.startswith("https://") or self.proxies.is_over_tls(scope)

    def _serves(self, host: bytes, scope: Scope) -> bool:
        return (
            not self.public_url or host == self._public_host or host in self.local.own_hosts(scope)
        )

    @property
    def _public_host(self) -> bytes:
        return self.public_url.lower().partition("://")[2].encode()

    def _is_own_origin(self, origin: bytes, host: bytes) -> bool:
        if self.public_url and origin == self.public_url.lower().encode():
            return True
        scheme, _, rest = origin.partition(b"://")
        return scheme in {b"http", b"https"} and rest == host != self._public_host


class SecurityHeaders:
    """ASGI middleware that adds the headers; `Cache-Control` only if a response has none."""

    def __init__(self, app: ASGIApp, *, over_tls: bool = False) -> None:
        self._app = app
        self._transport = [HSTS] if over_tls else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = _with_security_headers(message.get("headers", []))
                message["headers"] = [*headers, *self._transport]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _with_security_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = [pair for pair in headers if pair[0].lower() not in SECURITY_HEADERS]
    cached = any(name.lower() == b"cache-control" for name, _ in kept)
    no_store = [] if cached else [(b"cache-control", b"no-store")]
    return [*kept, *SECURITY_HEADERS.items(), *no_store]


def cross_origin_headers(origins: str) -> list[Middleware]:
    """The outer layer of CORS for a comma-separated list of origins; none without any.

    It adds headers to every response, so that pages can read those of errors too.
    """
    return _layer(CrossOriginHeaders, origins)


def preflights(origins: str) -> list[Middleware]:
    """The inner layer of CORS: it answers preflights, whose heads have been checked like others."""
    return _layer(Preflights, origins)


def _layer(kind: type[CORSMiddleware], origins: str) -> list[Middleware]:
    if not origins:
        return []
    layer = Middleware(
        kind,
        allow_origins=origins.split(","),
        allow_methods=("GET", "HEAD", "POST", "PATCH", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "If-None-Match"),
        # What pages of these origins may read, besides what browsers always show them.
        expose_headers=(
            "Content-Disposition",
            "ETag",
            "Location",
            "Retry-After",
            "Siteatlas-As-Of-Seq",
            "Siteatlas-Feed-Id",
            "Siteatlas-Schema",
            "X-Request-Id",
        ),
    )
    return [layer]


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

        await self.app(scope, receive, send)
