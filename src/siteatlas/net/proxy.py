"""The operator's HTTP proxy, which opens connections on our behalf.

Owns its address and credentials. `client.py` decides which requests use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
from yarl import URL

from siteatlas.errors import ConfigurationError

SHAPE = "It must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT."


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; as text it is shown without its credentials."""

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Read the address of a proxy; raises ConfigurationError without repeating the text."""
        try:
            parts = urlsplit(text)
            port = parts.port
            # As aiohttp requests it: an IPv6 address in its short form.
            host = URL.build(scheme="http", host=parts.hostname or "", port=port).raw_host
        except ValueError as error:
            raise ConfigurationError(SHAPE) from error
        rest = (parts.path.removesuffix("/"), parts.query, parts.fragment)
        if parts.scheme != "http" or not host or not port or any(rest) or not host.isascii():
            raise ConfigurationError(SHAPE)
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
    """The value of the Proxy-Authorization header; None without a user name."""
    if parts.username is None:
        return None
    return aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
