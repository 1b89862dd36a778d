"""The address of a closed installation: under which names it is reached, and through which proxies.

With access keys, any `Host` is served unless the public address is configured. Pages of other
origins are refused all the same, because a browser may have a session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Self

from starlette.types import Scope

from siteatlas.access.local_mode import LocalMode
from siteatlas.access.request_headers import BrowserPages, header_values
from siteatlas.errors import HostRefused, OriginRefused
from siteatlas.settings import Settings

MAX_ADDRESS_CHARS = 64


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The reverse proxies whose forwarded headers are used; those of others are ignored."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the setting; it has been checked."""
        parts = filter(None, map(str.strip, text.split(",")))
        return cls(tuple(ip_network(part) for part in parts))

    def client_address(self, scope: Scope) -> str:
        """The address of the client: the last one that no trusted proxy has."""
        client = str((scope.get("client") or ("",))[0])
        hops = b",".join(header_values(scope, b"x-forwarded-for")).decode("latin-1").split(",")
        for hop in reversed([hop.strip() for hop in hops]):
            if not hop or not self.trusts(client):
                break
            client = hop
        return client[:MAX_ADDRESS_CHARS]

    def is_over_tls(self, scope: Scope) -> bool:
        """Whether the client uses TLS, as far as a trusted proxy or the server says."""
        forwarded = header_values(scope, b"x-forwarded-proto")
        if forwarded and self.trusts(str((scope.get("client") or ("",))[0])):
            return forwarded[-1].strip().lower() == b"https"
        return bool(scope.get("scheme") == "https")

    def trusts(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
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
            raise HostRefused("The Host header must be the address of this service.")
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
        """Whether the service answers under this name."""
        return (
            not self.public_url or host == self._public_host or host in self.local.own_hosts(scope)
        )

    @property
    def _public_host(self) -> bytes:
        """The `Host` header of a request to the public address; empty without one."""
        return self.public_url.lower().partition("://")[2].encode()

    def _is_own_origin(self, origin: bytes, host: bytes) -> bool:
        """Whether a page of this origin is one of ours."""
        if self.public_url and origin == self.public_url.lower().encode():
            return True
        scheme, _, rest = origin.partition(b"://")
        return scheme in {b"http", b"https"} and rest == host != self._public_host
