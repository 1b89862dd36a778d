"""The sockets that processes listen on, refused in words when taken: the service on loopback only,
the metrics of a worker where the operator says.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from siteatlas.errors import BindRefused, ConfigurationError, PortTaken

LOOPBACK_NAMES = {"localhost": "127.0.0.1"}


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address; port 0 takes any free port."""
    return _listener(loopback_address(host), host, port)


def listen_anywhere(host: str, port: int) -> socket.socket:
    """A listening socket on any address of this machine, for what may be read by anybody."""
    try:
        address = str(ipaddress.ip_address(LOOPBACK_NAMES.get(host.lower(), host).strip("[]")))
    except ValueError as error:
        raise ConfigurationError(
            f"{host} is not an address to listen on. Give one of this machine, such as 127.0.0.1, "
            "or 0.0.0.0 for all of them."
        ) from error
    return _listener(address, host, port)


def _listener(address: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Another program already listens on {host}:{port}.") from error
        raise ConfigurationError(f"{host}:{port} cannot be served: {error.strerror}.") from error
    # Accepted sockets inherit it; asyncio does not set it on a socket that it did not make, and
    # without it each answer waits for the client's delayed acknowledgement, some 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def loopback_address(host: str) -> str:
    """The loopback address that `host` means; anything else is refused."""
    try:
        address = ipaddress.ip_address(LOOPBACK_NAMES.get(host.lower(), host).strip("[]"))
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise BindRefused(
            f"{host} is not a loopback address; only those can be served until access keys exist."
        )
    return str(address)


def base_url(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
