"""Listening sockets of the service and of worker metrics.

Reports clearly if an address cannot be used. Whether the service may use one is decided by
`access_check`.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from siteatlas.errors import BindRefused, ConfigurationError, PortTaken
from siteatlas.logs import Throttle, get_logger

BACKLOG = 2048
ACCEPT_FAILED = "socket.accept() out of system resource"

log = get_logger("serve")

CREATE_KEY = "siteatlas keys create --name admin --scope admin"
NO_ADMIN_KEY = "No active key has the scope admin."
CREATE_ADMIN_KEY = f"Create one on this machine: {CREATE_KEY}"
LOOPBACK_NAMES = {"localhost": "127.0.0.1"}
IPV4, IPV6 = 4, 6
LOOPBACK = {IPV4: "127.0.0.1", IPV6: "::1"}
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 what `*` stands for


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """A listening socket on an address of this machine; port 0 picks a free port.

    `option` is what PortTaken names as the way to choose another port.
    """
    return _listener(_bind_address(host), host, port, option)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; any name but `localhost` counts as public."""
    try:
        return ipaddress.ip_address(_plain_address(host)).is_loopback
    except ValueError:
        return False


def _plain_address(host: str) -> str:
    """The address that a setting names, without the brackets of IPv6."""
    return LOOPBACK_NAMES.get(host.lower(), ANY_ADDRESS if host == "*" else host).strip("[]")


def _bind_address(host: str) -> str:
    """The address to listen on; names are not resolved, because they may come to mean another."""
    try:
        return str(ipaddress.ip_address(_plain_address(host)))
    except ValueError as error:
        raise BindRefused(
            f"{host} is not an address to listen on. Use 127.0.0.1 or, with an access key, another "
            f"address of this machine, or 0.0.0.0 for all of them. Create a key with: {CREATE_KEY}"
        ) from error


def _listener(address: str, host: str, port: int, option: str) -> socket.socket:
    """Open a listening socket of the service or a worker; errors show `host` and `option`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"{host}:{port} is already in use by another program."
            raise PortTaken(message, option=option) from error
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    # Accepted sockets inherit it; asyncio does not set it on a socket that it did not make, and
    # without it each answer waits for the client's delayed acknowledgement, some 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextmanager
def quiet_accept_faults() -> Iterator[None]:
    """While the process has no free file descriptors, log one line per second.

    asyncio reports every connection that it cannot accept, with a traceback, and tries again.
    """
    loop = asyncio.get_running_loop()
    throttle = Throttle(burst=1)

    def log_accept_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler of the web server's event loop: limits the log of failed accepts."""
        if context.get("message") != ACCEPT_FAILED:
            loop.default_exception_handler(context)
        elif (left_out := throttle.admit()) is not None:
            log.error("accept_failed", reason=context["exception"], left_out=left_out)

    earlier = loop.get_exception_handler()
    loop.set_exception_handler(log_accept_failure)
    try:
        yield
    finally:
        loop.set_exception_handler(earlier)


def local_url(host: str, port: int) -> str:
    """The address at which this machine reaches a service that listens on `host`."""
    address = ipaddress.ip_address(_bind_address(host))
    if address.is_unspecified:
        address = ipaddress.ip_address(LOOPBACK[address.version])
    return f"http://[{address}]:{port}" if address.version == IPV6 else f"http://{address}:{port}"


def base_url(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
