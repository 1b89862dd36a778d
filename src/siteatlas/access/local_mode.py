"""Local mode: without access keys, only requests from and to this machine are served.

A page of another site in the operator's browser can reach a loopback port, but cannot forge `Host`,
`Origin` and `Sec-Fetch-*`, so these headers are checked. Programs send no `Sec-Fetch-*` headers and
are not affected.
"""

from __future__ import annotations

from ipaddress import ip_address

from starlette.types import Scope

from siteatlas.access.request_headers import BrowserPages, header_values
from siteatlas.errors import HostRefused, OriginRefused

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
HTTP_PORT = 80
NOT_LOCAL = "The connection was not made from a loopback address."


class LocalMode:
    """Refuses foreign hosts and origins.

    `host` and `port` are what the service was bound to. Port 0 stands for any free port: then the
    server says which one it became.
    """

    def __init__(self, pages: BrowserPages, *, host: str, port: int) -> None:
        self._pages = pages
        self._names = (*LOCAL_NAMES, *_further_name(host))
        self._port = port
        self._hosts: dict[int, frozenset[bytes]] = {}

    def check(self, scope: Scope) -> None:
        """Raise HostRefused or OriginRefused for a request that local mode does not serve."""
        if not _is_over_loopback(scope):
            raise HostRefused(NOT_LOCAL)
        hosts = self.own_hosts(scope)
        given = header_values(scope, b"host")
        if len(given) != 1 or given[0].lower() not in hosts:
            raise HostRefused
        for origin in header_values(scope, b"origin"):
            scheme, _, host = origin.lower().partition(b"://")
            if scheme != b"http" or host not in hosts:
                raise OriginRefused
        self._pages.check_fetch_site(scope)

    def own_hosts(self, scope: Scope) -> frozenset[bytes]:
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
