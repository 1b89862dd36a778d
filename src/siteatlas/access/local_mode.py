"""Local mode: without access keys, only requests from and to this machine are served.

A page of another site in the operator's browser can reach a loopback port, but cannot forge `Host`,
`Origin` and `Sec-Fetch-*`, so these headers are checked. Programs send no `Sec-Fetch-*` headers and
are not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from siteatlas.errors import HostRefused, OriginRefused

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
HTTP_PORT = 80
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
OWN_FETCH_SITES = {b"same-origin", b"none"}
# A link that was followed: the whole tab, not a frame, an image or a script.
NAVIGATION = ([b"navigate"], [b"document"])
POLICY_VIOLATION = 1008
NOT_LOCAL = "The connection was not made from a loopback address."


class LocalMode:
    """ASGI middleware that refuses foreign hosts and origins.

    `host` and `port` are what the service was bound to. Port 0 stands for any free port: then the
    server says which one it became. `is_page` tells to which paths links of other sites may lead.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        is_page: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        self._app = app
        self._names = (*LOCAL_NAMES, *_further_name(host))
        self._port = port
        self._is_page = is_page
        self._hosts: dict[int, frozenset[bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(scope)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Raise HostRefused or OriginRefused for a request that local mode does not serve."""
        if not _is_over_loopback(scope):
            raise HostRefused(NOT_LOCAL)
        hosts = self._own_hosts(scope)
        given = _header_values(scope, b"host")
        if len(given) != 1 or given[0].lower() not in hosts:
            raise HostRefused
        for origin in _header_values(scope, b"origin"):
            scheme, _, host = origin.lower().partition(b"://")
            if scheme != b"http" or host not in hosts:
                raise OriginRefused
        sites = _header_values(scope, b"sec-fetch-site")
        is_own = OWN_FETCH_SITES.issuperset(site.lower() for site in sites)
        if not is_own and not self._is_followed_link(scope):
            raise OriginRefused

    def _is_followed_link(self, scope: Scope) -> bool:
        """Whether a browser opens one of our pages because a link of another site was followed."""
        fetch = _header_values(scope, b"sec-fetch-mode"), _header_values(scope, b"sec-fetch-dest")
        return (
            scope["method"] in SAFE_METHODS and self._is_page(scope["path"]) and fetch == NAVIGATION
        )

    def _own_hosts(self, scope: Scope) -> frozenset[bytes]:
        """The `Host` values under which the service can be reached locally, for the port in use."""
        port = self._port or (scope.get("server") or ("", 0))[1] or HTTP_PORT
        if port not in self._hosts:
            hosts = {f"{name}:{port}".encode() for name in self._names}
            if port == HTTP_PORT:
                hosts.update(name.encode() for name in self._names)
            self._hosts[port] = frozenset(hosts)
        return self._hosts[port]


def _further_name(host: str) -> tuple[str, ...]:
    """The IPv4 loopback address that the service is bound to, if it is bound to one."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return ()
    return (str(address),) if address.is_loopback and address.version == 4 else ()  # noqa: PLR2004


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


def _header_values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of one header of the request."""
    return [value for key, value in scope["headers"] if key == name]
