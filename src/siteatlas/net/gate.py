"""The egress gate: every lookup and every socket of an HTTP client is checked here.

Owns what aiohttp may resolve and open, and the base of the clients that connect only through the
gate. The rules are in `egress.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from siteatlas.errors import DnsError, DnsNameUnknown, EgressDenied, ProxyFailed
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, note_denial
from siteatlas.net.faults import LIBRARY_FAULTS, map_exception
from siteatlas.net.framing import BoundedConnector
from siteatlas.net.limits import FetchLimits
from siteatlas.net.proxy import Proxy
from siteatlas.net.ranges import read_ip
from siteatlas.net.resolver import DnsResolver, Resolver
from siteatlas.net.response import CHUNK_BYTES

MAX_CACHED_NAMES = 256
MAX_LOOKUPS = 4
MAX_ADDRESSES = 4
MAX_CONNECTIONS = 64
MAX_HEADER_FIELDS = 128
MAX_HEADER_FIELD_BYTES = 16 * 1024
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


@dataclass(slots=True)
class ConnectTarget:
    """The one host and port that the running request may connect to: the site's, or the proxy's.

    A proxy is the operator's choice and may have any address.
    """

    host: str
    port: int
    addresses: tuple[str, ...]
    sockets: list[tuple[socket.socket, str]] = field(default_factory=list)
    denied: EgressDenied | None = None
    is_proxy: bool = False


_target: ContextVar[ConnectTarget | None] = ContextVar("target", default=None)


@contextlib.contextmanager
def choose_connect_target(
    address: WebAddress, proxy: Proxy | None = None, *, ips: Sequence[str] = ()
) -> Iterator[ConnectTarget]:
    """Set the target of the requests in the block; a denial at the gate raises EgressDenied.

    `ips` are what an earlier `Gate.look_up` found; nothing else is connected to then. The gate's
    own exception is kept on the target, because aiohttp and its helpers may wrap it,
    try the next address or swallow it.
    """
    host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
    literal = read_ip(host) is not None
    target = ConnectTarget(
        host, port, (host,) if literal else tuple(ips), is_proxy=proxy is not None
    )
    token = _target.set(target)
    try:
        yield target
    finally:
        _target.reset(token)
        if target.denied is not None:
            raise target.denied


class Gate(AbstractResolver):
    """aiohttp's resolver and socket factory, behind one policy."""

    def __init__(
        self, policy: EgressPolicy, resolver: Resolver, *, timeout: float, cache_seconds: float
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._timeout = timeout
        self._cache_seconds = min(cache_seconds, 60.0)
        self._cache: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: int = socket.AF_UNSPEC,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """The checked addresses of the target; a name is looked up unless that was done before."""
        target = _target.get()
        if target is None or (target.host, target.port) != (host, port):
            raise _denial(target, host, port, "not the target")
        if not target.addresses:
            target.addresses = await self._checked(target)
        return [_resolve_result(host, ip, port) for ip in target.addresses]

    async def look_up(self, address: WebAddress) -> tuple[str, ...]:
        """The addresses that a request for this address may connect to.

        One forbidden address among the records refuses the name. Of many records the first few
        are used.
        """
        if read_ip(address.host) is not None:
            return (address.host,)
        return await self._checked(ConnectTarget(address.host, address.port, ()))

    async def _checked(self, target: ConnectTarget) -> tuple[str, ...]:
        """Resolve the target and check each of its IP addresses against the egress policy."""
        addresses = await self._addresses_of(target)
        try:
            for ip in addresses:
                self._check(target, ip)
        except EgressDenied as denied:
            self._cache.pop(target.host, None)
            raise _denial(target, target.host, target.port, "record") from denied
        return tuple(addresses[:MAX_ADDRESSES])

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Make the socket for a connection, if it goes to an address that was checked."""
        family, kind, protocol, _, destination = info
        ip, port = str(destination[0]), int(destination[1])
        target = _target.get()
        if target is None or port != target.port or ip not in target.addresses:
            raise _denial(target, ip, port, "not the target")
        if family not in _FAMILIES:
            raise _denial(target, ip, port, "family")
        try:
            self._check(target, ip)
        except EgressDenied as denied:
            raise _denial(target, ip, port, "address") from denied
        opened = socket.socket(family, kind, protocol)
        target.sockets.append((opened, ip))
        return opened

    def verify_peers(self, target: ConnectTarget) -> None:
        """Compare what the new sockets are connected to with what was checked."""
        if target.denied is not None:
            raise target.denied
        for opened, ip in target.sockets:
            peer = _peer(opened)
            if peer is not None and (read_ip(peer[0]), peer[1]) != (read_ip(ip), target.port):
                raise _denial(target, peer[0], peer[1], "peer")

    async def close(self) -> None:
        """Forget all addresses."""
        self._cache.clear()

    def _check(self, target: ConnectTarget, ip: str) -> None:
        """Raise EgressDenied if the policy forbids this IP address; a proxy may have any."""
        if not target.is_proxy:
            self._policy.check_socket(target.host, ip, target.port)

    async def _addresses_of(self, target: ConnectTarget) -> Sequence[str]:
        """Resolve the host name of the target; the error says whether it is the proxy's."""
        try:
            return await self._addresses(target.host)
        except DnsError as error:
            if target.is_proxy:
                raise ProxyFailed("The host name of the proxy cannot be resolved.") from error
            raise

    async def _addresses(self, host: str) -> Sequence[str]:
        """The IP addresses of a host name, from the cache or the resolver."""
        known = self._cache.get(host)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        try:
            async with asyncio.timeout(self._timeout), self._lookups:
                found = tuple(await self._resolver.addresses(host))
        except TimeoutError as error:
            raise DnsError("The host name of the site was not resolved in time.") from error
        if not found:
            raise DnsNameUnknown
        if len(self._cache) >= MAX_CACHED_NAMES:
            self._cache.clear()
        self._cache[host] = (time.monotonic() + self._cache_seconds, found)
        return found


def _denial(target: ConnectTarget | None, host: str, port: int, reason: str) -> EgressDenied:
    """The same error for every reason; the reason itself is only logged."""
    note_denial(target.host if target else host, host, port, reason)
    denied = EgressDenied()
    if target is not None:
        target.denied = denied
    return denied


def _resolve_result(host: str, ip: str, port: int) -> ResolveResult:
    """An IP address in the form in which aiohttp expects the result of a resolver."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return ResolveResult(
        hostname=host,
        host=ip,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )


def _peer(opened: socket.socket) -> tuple[str, int] | None:
    """The other end of a connection; None when it is closed or was never made."""
    if opened.fileno() < 0:
        return None
    try:
        name = opened.getpeername()
    except OSError:
        return None
    return str(name[0]), int(name[1])


class GatedClient:
    """A client whose connections all pass the egress gate; they are open during `async with`.

    `tls` replaces the default trust store.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        limits: FetchLimits,
        *,
        user_agent: str,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._user_agent = user_agent
        self._tls = tls
        self._gate = Gate(
            policy,
            resolver or DnsResolver(),
            timeout=limits.dns,
            cache_seconds=limits.dns_cache,
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = _open_session(
            self._gate, self._limits, user_agent=self._user_agent, tls=self._tls
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            await self._gate.close()
            self._session = None

    @staticmethod
    def _request_url(address: WebAddress) -> URL:
        """The URL to request; EgressDenied if yarl sees another host or port in it than we do."""
        url = URL(address.url, encoded=True)
        if (url.raw_host, url.port) != (address.host, address.port):
            raise EgressDenied
        return url


def _open_session(
    gate: Gate, limits: FetchLimits, *, user_agent: str, tls: ssl.SSLContext | None = None
) -> aiohttp.ClientSession:
    """A session whose connections all pass the egress gate."""
    connector = BoundedConnector(
        resolver=gate,
        use_dns_cache=False,
        socket_factory=gate.open_socket,
        limit=MAX_CONNECTIONS,
        ssl=tls or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": user_agent, "Accept": "*/*"},
        timeout=aiohttp.ClientTimeout(
            total=None,
            connect=limits.dns + limits.connect,
            sock_connect=limits.connect,
            sock_read=limits.first_byte,
        ),
        trust_env=False,
        auto_decompress=False,
        middlewares=(_named_faults,),
        read_bufsize=CHUNK_BYTES,
        max_field_size=MAX_HEADER_FIELD_BYTES,
        max_headers=MAX_HEADER_FIELDS,
    )


async def _named_faults(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Translate faults before aiohttp sees them: it would silently send the request again."""
    try:
        return await handler(request)
    except LIBRARY_FAULTS as error:
        raise map_exception(error) from error


def request_options(
    headers: Mapping[str, str], address: WebAddress, proxy: Proxy | None
) -> dict[str, Any]:
    """Headers and proxy of a request; over HTTPS, the site does not see what is for the proxy."""
    if proxy is None:
        return {"headers": headers}
    if address.url.startswith("https:"):
        return {"headers": headers, "proxy": proxy.url, "proxy_headers": proxy.headers}
    return {"headers": {**headers, **proxy.headers}, "proxy": proxy.url}
