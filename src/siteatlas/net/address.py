"""Web addresses: strict parsing of what a person, a site or a document provides.

Owns the parser (ada-url) and the canonical form. `egress.py` decides whether an address may be
contacted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from sys import intern

import ada_url

from siteatlas.errors import (
    AddressCredentials,
    AddressEmpty,
    AddressError,
    AddressScheme,
    AddressTooLong,
)
from siteatlas.settings import MAX_PORT
from siteatlas.text import CONTROLS

MAX_ADDRESS_CHARS = 2048
MAX_NAME_CHARS = 253
DEFAULT_PORTS = {"http": 80, "https": 443}

_find_control = re.compile(f"[{CONTROLS}]").search
_match_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?").match
_split_at_path = re.compile(r"[/?]").split
_match_host_and_port = re.compile(
    r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[^:]*))?"
).fullmatch
_find_forbidden = re.compile(r"[\s%\\]").search
_is_port = re.compile(r"[1-9][0-9]{0,4}").fullmatch
_is_label = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)").fullmatch
_is_number = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
_octet = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_match_dotted_quad = re.compile(rf"{_octet}(?:\.{_octet}){{3}}").fullmatch


@dataclass(frozen=True, slots=True)
class WebAddress:
    """One http or https address in canonical form: encoded, without fragment and credentials.

    `host` is lower-case ASCII, an IPv6 address has no brackets; `path` includes the query.
    """

    url: str
    scheme: str
    host: str
    port: int
    path: str
    scheme_given: bool = field(default=True, compare=False)
    port_given: bool = field(default=False, compare=False)

    @property
    def origin(self) -> str:
        """Scheme and host, with the port when it is not the scheme's default."""
        return self.url[: len(self.url) - len(self.path)]

    @property
    def domain(self) -> str:
        """The key of the site: host without one leading `www.`, with the port where it matters."""
        host = f"[{self.host}]" if ":" in self.host else bare_host(self.host)
        usual = self.port == DEFAULT_PORTS[self.scheme]
        kept = self.port_given and not self.scheme_given
        return host if usual and not kept else f"{host}:{self.port}"

    @property
    def host_port(self) -> str:
        """Host and port, in the form that the egress policy and its allow list use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def at(self, path: str) -> WebAddress:
        """Another path at this origin; the path is canonical already."""
        return WebAddress(self.origin + path, self.scheme, self.host, self.port, path)

    @property
    def is_site_root(self) -> bool:
        """Whether this is the home page: no path, no query."""
        return self.path == "/"


def parse_site(text: str) -> WebAddress:
    """Read what a person typed; https is assumed when no scheme is given."""
    text = _prepared(text)
    scheme, rest = _split_scheme(text, port_may_follow=True)
    if scheme is None:
        return _absolute("https", rest, scheme_given=False)
    return _absolute(scheme, rest)


def parse_url(text: str, base: str | None = None) -> WebAddress:
    """Read a URL of a redirect, robots.txt or sitemap; with `base` it may be relative."""
    text = _prepared(text)
    scheme, rest = _split_scheme(text, port_may_follow=False)
    if scheme is not None:
        return _absolute(scheme, rest)
    if base is None:
        raise AddressError("The address is incomplete.")
    start = parse_url(base)
    if rest.startswith("//"):
        return _absolute(start.scheme, rest[2:])
    joined = _parsed(rest, start.url)
    found = _canonical(joined)
    if found.origin != start.origin:
        raise AddressError
    return found


def resolve_url(text: str, base: str) -> str | None:
    """A listed page as an absolute URL, resolved as browsers do; None if it is not a URL."""
    try:
        return ada_url.URL(text, base=base).href
    except ValueError:
        return None


def is_valid_authority(text: str) -> bool:
    """Whether host and port, as written in a listed URL, could be requested at all."""
    # A name in its longest encoding and a port.
    return len(text) <= 1024 and _is_valid_authority(text)


@lru_cache(maxsize=4096)
def _is_valid_authority(text: str) -> bool:
    try:
        name = ada_url.URL(f"http://{text}/").hostname.removesuffix(".")
    except ValueError:
        return False
    # Names that come from mistakes such as `https://https://example.com/`.
    if name in {"http", "https"} or not name.strip("-"):
        return False
    return len(name) <= MAX_NAME_CHARS and all(0 < len(label) <= 63 for label in name.split("."))


def _prepared(text: str) -> str:
    """Trim and check the text; refuse what the standard would silently drop or replace."""
    text = text.strip(" \t\r\n")
    if not text:
        raise AddressEmpty
    if len(text) > MAX_ADDRESS_CHARS:
        raise AddressTooLong
    if _find_control(text):
        raise AddressError("The address contains a control character.")
    text = text.partition("#")[0]
    if "\\" in text.partition("?")[0]:
        raise AddressError("The address contains a backslash.")
    return text


def _split_scheme(text: str, *, port_may_follow: bool) -> tuple[str | None, str]:
    match = _match_scheme(text)
    if match is None:
        return None, text
    scheme, slashes = match[1].lower(), match[2]
    if slashes:
        if scheme not in DEFAULT_PORTS:
            raise AddressScheme
        return scheme, text[match.end() :]
    if scheme in DEFAULT_PORTS:
        raise AddressError("The scheme must be followed by '//'.")
    if port_may_follow and "@" in _split_at_path(text, maxsplit=1)[0]:
        raise AddressCredentials
    if port_may_follow and text[match.end() : match.end() + 1].isdigit():
        return None, text
    raise AddressScheme


# A job parses the address of its site several times.
@lru_cache(maxsize=256)
def _absolute(scheme: str, rest: str, *, scheme_given: bool = True) -> WebAddress:
    """Parse an absolute URL; AddressError unless the parser read host and port as written."""
    host, port = _split_authority(_split_at_path(rest, maxsplit=1)[0])
    parsed = _parsed(f"{scheme}://{rest}")
    if parsed.protocol != f"{scheme}:" or not _same_host(host, parsed.hostname):
        raise AddressError
    address = _canonical(parsed, scheme_given=scheme_given, port_given=port is not None)
    if address.port != (port or DEFAULT_PORTS[scheme]):
        raise AddressError
    return address


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Host and port as written, after all checks that must come before the parser."""
    if "@" in authority:
        raise AddressCredentials
    match = _match_host_and_port(authority)
    if match is None or not match["host"] or _find_forbidden(authority):
        raise AddressError
    if match["port"] is None:
        return match["host"], None
    if not _is_port(match["port"]) or int(match["port"]) > MAX_PORT:
        raise AddressError("The port must be a number from 1 to 65535.")
    return match["host"], int(match["port"])


def _parsed(text: str, base: str | None = None) -> ada_url.URL:
    try:
        return ada_url.URL(text, base=base)
    except ValueError as error:
        raise AddressError from error


def _same_host(written: str, parsed: str) -> bool:
    """Whether the parser understood the host as it was written, and as nothing else."""
    if written.startswith("["):
        return _same_ipv6(written[1:-1], parsed[1:-1])
    if written.endswith(".") and not _is_number(written.split(".")[-2].lower()):
        written, parsed = written[:-1], parsed.removesuffix(".")
    labels, understood = written.split("."), parsed.split(".")
    if len(parsed) > MAX_NAME_CHARS or len(labels) != len(understood):
        return False
    if _is_number(understood[-1]):
        return written == parsed and _match_dotted_quad(parsed) is not None
    return all(map(_same_label, labels, understood))


def _same_ipv6(written: str, parsed: str) -> bool:
    try:
        return IPv6Address(written) == IPv6Address(parsed)
    except AddressValueError:
        return False


def _same_label(written: str, understood: str) -> bool:
    """Whether a label is unchanged ASCII or was encoded, so that it hides no digit or dot."""
    if not _is_label(understood):
        return False
    return written.lower() == understood if written.isascii() else understood.startswith("xn--")


def _canonical(
    parsed: ada_url.URL, *, scheme_given: bool = True, port_given: bool = False
) -> WebAddress:
    scheme = intern(parsed.protocol.removesuffix(":"))
    host = parsed.hostname.removesuffix(".")
    port = f":{parsed.port}" if parsed.port else ""
    path = parsed.pathname + parsed.search
    url = f"{scheme}://{host}{port}{path}"
    if len(url) > MAX_ADDRESS_CHARS:
        raise AddressTooLong
    return WebAddress(
        url=url,
        scheme=scheme,
        host=intern(host.strip("[]")),
        port=int(parsed.port) if parsed.port else DEFAULT_PORTS[scheme],
        path=path,
        scheme_given=scheme_given,
        port_given=port_given,
    )


def bare_host(host: str) -> str:
    """A host without one leading `www.`, unless only a top-level domain would be left."""
    shorter = host.removeprefix("www.")
    return shorter if "." in shorter else host
