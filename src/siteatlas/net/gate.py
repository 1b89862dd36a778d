"""The egress gate: every lookup and every socket of an HTTP client is checked here.

Owns what aiohttp may resolve, open and use again. The rules are in `egress.py`, the clients that
connect only through the gate in `client.py` and `posting.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, cast
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
import pycares
from aiohttp import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from siteatlas.aio import LoopLocal
from siteatlas.errors import (
    ConfigurationError,
    DnsError,
    DnsNameUnknown,
    EgressDenied,
    HttpProtocolError,
    InputError,
    ProxyFailed,
)
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, note_denial, read_ip
from siteatlas.net.response import CHUNK_BYTES, LIBRARY_FAULTS, FetchLimits, map_exception
from siteatlas.settings import LoadedSettings, Settings, unusable_setting

LOOKUP_SECONDS = 4.5
LOOPBACK = "127.0.0.1"

# Shorter than the first pause before a job is retried.
DEAD_SECONDS = 10.0

MAX_DEAD_NAMES = 1024
DNS_SECONDS = 60.0
MAX_CACHED_NAMES = 4096
# A name with more is made up to fill the memory.
MAX_RECORDS = 64
MAX_IDLE_HOSTS = 512
IDLE_SECONDS = 15.0
MAX_ADDRESSES = 4
MAX_INTERIM_ANSWERS = 8
MAX_HEADER_CHARS = 8 * 1024
MAX_BYTES_BEFORE_HEAD = 128 * 1024
SMALL_READ = 16 * 1024
LARGE_READ = 64 * 1024


class Gate(AbstractResolver):
    """The HTTP connections of a process; every lookup and every socket is checked here.

    Any number of scans share it, each with a policy of its own. It is open in `async with`, in as
    many event loops as need it: each has its own connections, until its last user leaves.
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or DnsResolver()
        self._names: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            self._opened[loop] = _Opened(_open_session(self))
        self._opened[loop].users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        opened = self._here
        opened.users -= 1
        if not opened.users:
            del self._opened[asyncio.get_running_loop()]
            await opened.session.close()

    @property
    def _here(self) -> _Opened:
        opened = self._opened.get(asyncio.get_running_loop())
        if opened is None:
            raise RuntimeError("The HTTP client must be entered with `async with`")
        return opened

    @property
    def session(self) -> aiohttp.ClientSession:
        """What sends the requests of the running loop, each in `choose_connect_target`."""
        return self._here.session

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

    async def look_up(
        self, address: WebAddress, policy: EgressPolicy, limits: FetchLimits
    ) -> tuple[str, ...]:
        """The addresses that a request for this address may connect to.

        One forbidden address among the records refuses the name. Of many records the first few
        are used.
        """
        if read_ip(address.host) is not None:
            return (address.host,)
        return await self._checked(ConnectTarget(policy, limits, address.host, address.port))

    async def _checked(self, target: ConnectTarget) -> tuple[str, ...]:
        is_local = not target.is_proxy and target.policy.is_local_name(target.host, target.port)
        addresses: Sequence[str] = (LOOPBACK,)
        try:
            if not is_local:
                addresses = await self._addresses(target.host, target.limits)
        except DnsError as error:
            if target.is_proxy:
                raise ProxyFailed("The host name of the proxy cannot be resolved.") from error
            raise
        try:
            if not target.is_proxy:
                target.policy.check_records(target.host, addresses, target.port)
        except EgressDenied as denied:
            self._names.pop(target.host, None)
            _, port, ip = denied.at or ("", target.port, target.host)
            raise _denial(target, ip, port, "record") from denied
        return tuple(addresses[:MAX_ADDRESSES])

    async def _addresses(self, host: str, limits: FetchLimits) -> Sequence[str]:
        names = self._names
        now, (found_at, found) = time.monotonic(), names.get(host, (-math.inf, ()))
        if now - found_at < min(limits.dns_cache, DNS_SECONDS):
            return found
        try:
            async with asyncio.timeout(limits.dns):
                found = tuple(await self._resolver.addresses(host))
        except TimeoutError as error:
            raise DnsError("The host name of the site was not resolved in time.") from error
        if not found:
            raise DnsNameUnknown
        if len(found) > MAX_RECORDS:
            raise DnsError(f"The host name of the site has more than {MAX_RECORDS} addresses.")
        names.pop(host, None)
        now = time.monotonic()
        names[host] = now, found
        for oldest in list(itertools.islice(names, 2)):
            if len(names) > MAX_CACHED_NAMES or now - names[oldest][0] > DNS_SECONDS:
                names.pop(oldest, None)
        return found

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Make the socket for a connection, if it goes to an address that was checked."""
        family, kind, protocol, _, destination = info
        ip, port = str(destination[0]), int(destination[1])
        target = _target.get()
        if target is None or port != target.port or ip not in target.addresses:
            raise _denial(target, ip, port, "not the target")
        if family not in {socket.AF_INET, socket.AF_INET6}:
            raise _denial(target, ip, port, "family")
        _check_address(target, ip, "address")
        target.is_new = True
        return socket.socket(family, kind, protocol)

    def close_idle(self, user: object) -> None:
        """Close the connections of this user on which no request runs."""
        connector = self.session.connector
        assert isinstance(connector, BoundedConnector)
        connector.close_idle(user)

    async def close(self) -> None:
        """Required of a resolver; nothing is open."""


@dataclass(slots=True)
class _Opened:
    """The connections of one event loop, and how many use them."""

    session: aiohttp.ClientSession
    users: int = 0


def _open_session(gate: Gate) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=BoundedConnector(gate),
        request_class=PooledRequest,
        response_class=NamedFaults,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        read_bufsize=CHUNK_BYTES,
        max_field_size=16 * 1024,
        max_headers=128,
    )


class NamedFaults(aiohttp.ClientResponse):
    """Translates faults before aiohttp sees them: it would silently send the request again."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Wait for the head of the response; called by aiohttp."""
        try:
            return await super().start(connection)
        except LIBRARY_FAULTS as error:
            raise map_exception(error) from error


def request_url(address: WebAddress) -> URL:
    """The URL to request; EgressDenied if yarl sees another host or port in it than we do."""
    url = URL(address.url, encoded=True)
    if (url.raw_host, url.port) != (address.host, address.port):
        raise EgressDenied
    return url


def request_options(
    headers: Mapping[str, str], address: WebAddress, proxy: Proxy | None
) -> dict[str, Any]:
    """Headers and proxy of a request; over HTTPS, the site does not see what is for the proxy."""
    if proxy is None:
        return {"headers": headers}
    if address.url.startswith("https:"):
        return {"headers": headers, "proxy": proxy.url, "proxy_headers": proxy.headers}
    return {"headers": {**headers, **proxy.headers}, "proxy": proxy.url}


def time_limits(limits: FetchLimits) -> aiohttp.ClientTimeout:
    """The limits that aiohttp watches over; it has no limit of its own for a whole request."""
    return aiohttp.ClientTimeout(
        total=None,
        sock_connect=limits.connect,
        sock_read=limits.first_byte,
    )


def admits_peer(peer: Any) -> bool:
    """Whether the running request may use a connection to this peer; EgressDenied if it must not.

    Also one that an earlier request opened: the policy may be another one, and the name may have
    moved since. Such a connection is only of no use to this request.
    """
    target = _target.get()
    if target is None or peer is None:
        raise _denial(target, "", 0, "peer")
    ip, port = str(peer[0]), int(peer[1])
    is_expected = port == target.port and (
        not target.addresses
        or ip in target.addresses
        or read_ip(ip) in map(read_ip, target.addresses)
    )
    if is_expected:
        _check_address(target, ip, "peer")
    elif target.is_new:
        raise _denial(target, ip, port, "peer")
    return is_expected


def _check_address(target: ConnectTarget, ip: str, reason: str) -> None:
    if target.is_proxy:
        return
    try:
        target.policy.check_socket(target.host, ip, target.port)
    except EgressDenied as denied:
        raise _denial(target, ip, target.port, reason) from denied


def _denial(target: ConnectTarget | None, host: str, port: int, reason: str) -> EgressDenied:
    """The same error for every reason; the reason itself is only logged."""
    note_denial(target.host if target else host, host, port, reason)
    denied = EgressDenied(at=(target.host if target else host, port, host))
    if target is not None:
        target.denied = denied
    return denied


def _resolve_result(host: str, ip: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return ResolveResult(
        hostname=host,
        host=ip,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )


class PoolKey(NamedTuple):
    """What requests must have in common to use one connection: aiohttp's key, and their user.

    A scan uses no connection of another. A site that sends a response too many can then mix up only
    what one scan reads, and not show what it serves to the headers of a scan to those without.
    """

    host: str
    port: int | None
    is_ssl: bool
    ssl: object
    proxy: URL | None
    proxy_auth: object
    proxy_headers_hash: int | None
    server_hostname: str | None
    user: object


class PooledRequest(aiohttp.ClientRequest):
    """A request that uses only connections of its user."""

    @property
    def connection_key(self) -> PoolKey:  # type: ignore[override]
        """The key of the connections that this request may use."""
        target = _target.get()
        if target is None:
            raise _denial(None, self.host, self.port or 0, "not the target")
        return PoolKey(*super().connection_key, target.user)


@dataclass(slots=True)
class ConnectTarget:
    """The one host and port that the running request may connect to: the site's, or the proxy's.

    A proxy is the operator's choice and may have any address. `user` is the client whose
    connections may be used. `is_new`: it opened a socket.
    """

    policy: EgressPolicy
    limits: FetchLimits
    host: str
    port: int
    addresses: tuple[str, ...] = ()
    is_proxy: bool = False
    user: object = None
    is_new: bool = False
    denied: EgressDenied | None = None


_target: ContextVar[ConnectTarget | None] = ContextVar("target", default=None)


@contextlib.contextmanager
def choose_connect_target(
    address: WebAddress,
    policy: EgressPolicy,
    limits: FetchLimits = FetchLimits(),
    proxy: Proxy | None = None,
    *,
    ips: Sequence[str] = (),
    user: object = None,
) -> Iterator[ConnectTarget]:
    """Set the target of the requests in the block; a denial at the gate raises EgressDenied.

    `ips` are what an earlier `Gate.look_up` found; nothing else is connected to then. The gate's
    own exception is kept on the target, because aiohttp and its helpers may wrap it,
    try the next address or swallow it.
    """
    host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
    known = (host,) if read_ip(host) is not None else tuple(ips)
    target = ConnectTarget(policy, limits, host, port, known, proxy is not None, user)
    token = _target.set(target)
    try:
        yield target
    finally:
        _target.reset(token)
        if target.denied is not None:
            raise target.denied


class Resolver(Protocol):
    """Resolves a host name to all of its IP addresses."""

    async def addresses(self, host: str) -> Sequence[str]:
        """All IP addresses of a host; raises DnsNameUnknown or DnsError if there is none."""


class DnsResolver:
    """Queries the hosts file, then the name servers of the system or the given ones.

    How many lookups run at the same time depends on how many documents are read. A name whose
    servers did not respond in time is not looked up again for a few seconds. `servers` are IP
    addresses, with a port where it is not 53.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = tuple(servers)
        self._dead_until: dict[str, float] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        """Query the name servers unless they recently did not respond for this name."""
        if self._dead_until.get(host, 0.0) > time.monotonic():
            raise DnsError("The name servers of the site did not respond recently.")
        since = time.monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._query(host)
        except TimeoutError as error:
            self._remember_dead_name(host)
            raise DnsError("The host name of the site was not resolved in time.") from error
        except pycares.AresError as error:
            if error.args[0] in {pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA}:
                raise DnsNameUnknown from error
            if time.monotonic() - since > 1.0:
                self._remember_dead_name(host)
            raise DnsError from error
        except UnicodeError as error:
            raise DnsError from error

    async def _query(self, host: str) -> Sequence[str]:
        with DnsQuery(self._servers) as query:
            return await query.addresses(host)

    def _remember_dead_name(self, host: str) -> None:
        if len(self._dead_until) >= MAX_DEAD_NAMES:
            self._dead_until.clear()
        self._dead_until[host] = time.monotonic() + DEAD_SECONDS


class DnsQuery:
    """One lookup by c-ares on the event loop; use it with `with`.

    It has a separate channel, created in a tenth of a millisecond. So a changed resolv.conf takes
    effect at once, each lookup has its own source port, and a cancelled one leaves nothing behind.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[list[str]] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._is_closed = False
        self._channel = pycares.Channel(
            sock_state_cb=self._watch,
            timeout=1.5,
            tries=3,
            servers=list(servers) or None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answer.cancel()
        self._channel.cancel()
        # The channel closes its sockets from a thread, which must not reach the loop.
        self._is_closed = True
        self._unwatch_sockets()
        self._channel.close()

    async def addresses(self, host: str) -> list[str]:
        """All IP addresses in order of preference; raises AresError if there is none."""
        self._channel.getaddrinfo(
            host,
            None,
            family=socket.AF_UNSPEC,
            type=socket.SOCK_STREAM,
            callback=self._receive_answer,
        )
        self._set_timer()
        return await self._answer

    def _receive_answer(self, result: Any, code: int | None) -> None:
        if self._answer.done():
            return
        if code is not None:
            self._answer.set_exception(pycares.AresError(code, pycares.errno.strerror(code)))
        else:
            found = (node.addr[0].decode("ascii") for node in result.nodes)
            self._answer.set_result(list(dict.fromkeys(found)))

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        if self._is_closed:
            return
        if readable:
            self._loop.add_reader(fd, self._process_sockets, fd, pycares.ARES_SOCKET_BAD)
            self._reading.add(fd)
        elif fd in self._reading:
            self._loop.remove_reader(fd)
            self._reading.discard(fd)
        if writable:
            self._loop.add_writer(fd, self._process_sockets, pycares.ARES_SOCKET_BAD, fd)
            self._writing.add(fd)
        elif fd in self._writing:
            self._loop.remove_writer(fd)
            self._writing.discard(fd)

    def _process_sockets(self, read_fd: int, write_fd: int) -> None:
        self._channel.process_fd(read_fd, write_fd)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._answer.done():
            pause = self._channel.timeout(1.0)  # type: ignore[no-untyped-call]
            bad = pycares.ARES_SOCKET_BAD
            self._timer = self._loop.call_later(pause, self._process_sockets, bad, bad)

    def _unwatch_sockets(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for fd in self._reading:
            self._loop.remove_reader(fd)
        for fd in self._writing:
            self._loop.remove_writer(fd)


class BoundedConnector(aiohttp.TCPConnector):
    """The connections of one loop: limited in what they receive, checked for each request.

    How many are in use is for the politeness of their hosts to limit; those that are idle are
    closed after a while, at the end of their scan, or when there are too many.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__(
            resolver=gate,
            use_dns_cache=False,
            socket_factory=gate.open_socket,
            limit=0,
            keepalive_timeout=IDLE_SECONDS,
        )
        self._factory = functools.partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]

    async def connect(self, *args: Any, **options: Any) -> Connection:
        """A connection that the running request may use, new or used before."""
        while True:
            connection = await super().connect(*args, **options)
            transport = connection.transport
            try:
                peer = transport and transport.get_extra_info("peername")
                if admits_peer(peer) and transport and not _was_closed(transport):
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()

    def close_idle(self, user: object) -> None:
        """Close the connections of this user on which no request runs."""
        keys = cast("list[PoolKey]", list(self._conns))
        for key in keys:
            if key.user is user:
                self._abort_idle(key)

    def _abort_idle(self, key: Any) -> None:
        # Closing it would wait for the site's part in ending TLS.
        for protocol, _ in self._conns.pop(key, ()):
            protocol.abort()

    def _release(self, key: Any, protocol: Any, **options: Any) -> None:
        super()._release(key, protocol, **options)
        protocol.is_idle = True
        if len(self._conns) > MAX_IDLE_HOSTS:
            self._abort_idle(next(iter(self._conns)))


def _was_closed(transport: asyncio.Transport) -> bool:
    """Whether the site has closed a connection in between, which the loop has not noticed yet.

    Nothing but its end, or bytes that nobody asked for, can have arrived on one that was idle.
    """
    target = _target.get()
    if target is None or target.is_new:
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))


# One for all connections of a loop, most of which wait: what a read puts there is copied before
# the loop reads from another connection.
_receive_buffers = LoopLocal(lambda: memoryview(bytearray(LARGE_READ)))


class BoundedHandler(ResponseHandler, asyncio.BufferedProtocol):
    """A connection of aiohttp that is aborted when a site sends too much besides the document.

    Until the head is complete, and while chunks are small, little is read at a time: parsing a
    read of tiny chunks takes a hundred times as long as parsing one of plain body.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._space = _receive_buffers.get()
        self.is_idle = False
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._answers = 0
        self._wire_bytes = 0
        self._head_bytes = 0
        self._has_head = False
        self._is_chunked = False
        self._body: aiohttp.StreamReader | None = None

    def set_response_params(self, **options: Any) -> None:
        """Prepare for the response to a new request; called by aiohttp."""
        self.is_idle = False
        self._reset_counts()
        super().set_response_params(**options)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """The buffer for the next bytes of a response; small while it may be all overhead."""
        return self._space if self._is_mostly_body else self._space[:SMALL_READ]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that the transport has written to the buffer."""
        self.data_received(bytes(self._space[:nbytes]))

    def feed_data(self, data: tuple[Any, Any], size: int = 0) -> None:
        """Count a parsed response, interim or final; called by aiohttp."""
        message, body = data
        self._answers += 1
        self._head_bytes += sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
        if not self._has_head and message.code >= 200:
            self._has_head = True
            self._is_chunked = message.chunked
            self._body = body
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, then abort the response if it has too much overhead.

        What arrives between two requests would be taken for the response to the next one.
        """
        if self.is_idle and data:
            if self.transport is not None:
                self.transport.abort()
            return
        super().data_received(data)
        self._wire_bytes += len(data)
        reason = self._overhead_fault()
        if reason is not None and self.transport is not None:
            self._abort_response(HttpProtocolError(reason))

    @property
    def _framing_bytes(self) -> int:
        """Bytes received besides headers and body; some may not have been parsed yet."""
        body_bytes = self._body.total_bytes if self._body is not None else 0
        return self._wire_bytes - self._head_bytes - body_bytes

    @property
    def _is_mostly_body(self) -> bool:
        """Whether the response is mostly body, so that a large read is parsed quickly."""
        if not self._has_head:
            return False
        if not self._is_chunked:
            return True
        enough = self._wire_bytes >= LARGE_READ
        return enough and self._framing_bytes * 16 <= self._wire_bytes

    def _overhead_fault(self) -> str | None:
        if self._answers > MAX_INTERIM_ANSWERS + 1:
            return "The site sent too many interim responses."
        if not self._has_head:
            too_long = self._wire_bytes > MAX_BYTES_BEFORE_HEAD
            return "The response headers are too long." if too_long else None
        framing = self._framing_bytes
        if self._is_chunked and framing > 16 * 1024 + (self._wire_bytes - framing) // 2:
            return "The site sends the document in chunks of a few bytes."
        return None

    def _abort_response(self, error: HttpProtocolError) -> None:
        transport, body = self.transport, self._body
        self._buffer.clear()
        self.set_exception(error)
        if body is not None and not body.is_eof():
            body.set_exception(error)
        # Otherwise the end of the connection would take the place of the reason for it.
        self._payload = None
        if transport is not None:
            transport.abort()


# The client sets these itself; a second opinion would break requests or their limits.
_OURS = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "expect", "host", "if-modified-since"),
        *("if-none-match", "proxy-authorization", "range", "te", "trailer", "transfer-encoding"),
        *("upgrade", "user-agent"),
    )
)

_is_header_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}").fullmatch
_is_header_value = re.compile(r"[\x20-\x7e\t]{0,8192}").fullmatch


def read_header_lines(lines: Iterable[str]) -> dict[str, str]:
    """`Name: value` lines as a table; InputError names the header, never its value."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise InputError("A header is written as 'Name: value'.")
        headers[name.strip()] = value.strip()
    return checked_headers(headers)


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the table; InputError for what cannot or must not be sent."""
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADER_CHARS:
        raise InputError(f"The headers have more than {MAX_HEADER_CHARS:,} characters.")
    if len({name.lower() for name in headers}) < len(headers):
        raise InputError("A header can be given only once.")
    for name, value in headers.items():
        if not _is_header_name(name):
            raise InputError("The header name contains an invalid character.")
        if name.lower() in _OURS:
            raise InputError(f"The header {name} is set by Siteatlas itself.")
        if not _is_header_value(value):
            raise InputError(f"The value of the header {name} contains an invalid character.")
    return dict(headers)


@dataclass(frozen=True, slots=True)
class OriginHeaders:
    """Request headers for one origin: never sent to another, never shown."""

    origin: str
    values: Mapping[str, str] = field(repr=False)

    @property
    def names(self) -> list[str]:
        return sorted(self.values)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; as text it is shown without its credentials."""

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Read the address of a proxy; raises ConfigurationError without repeating the text."""
        unusable = ConfigurationError(
            "It must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT."
        )
        try:
            parts = urlsplit(text)
            port = parts.port
            # As aiohttp requests it: an IPv6 address in its short form.
            host = URL.build(scheme="http", host=parts.hostname or "", port=port).raw_host
        except ValueError as error:
            raise unusable from error
        rest = (parts.path.removesuffix("/"), parts.query, parts.fragment)
        if parts.scheme != "http" or not host or not port or any(rest) or not host.isascii():
            raise unusable
        return cls(host, port, _credentials(parts))

    @property
    def url(self) -> URL:
        """The URL of the operator's HTTP proxy, without its credentials."""
        return URL.build(scheme="http", host=self.host, port=self.port)

    @property
    def headers(self) -> dict[str, str]:
        """The credentials for the proxy, for every request and every tunnel."""
        return {"Proxy-Authorization": self.credentials} if self.credentials else {}

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def _credentials(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    return aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))


def configured_proxy(settings: Settings) -> Proxy | None:
    """The operator's proxy; None without one, ConfigurationError for an unusable address."""
    return Proxy.parse(settings.proxy.get_secret_value()) if settings.proxy else None


def require_usable(loaded: LoadedSettings) -> None:
    """Raise ConfigurationError, with name and origin, for an unusable allow list or proxy."""
    field = "egress_allow"
    try:
        EgressPolicy.from_text(loaded.settings.egress_allow)
        field = "proxy"
        configured_proxy(loaded.settings)
    except ConfigurationError as error:
        raise unusable_setting(field, loaded.origins[field], error.message) from error
