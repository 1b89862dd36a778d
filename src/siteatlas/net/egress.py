"""Which hosts and addresses may be contacted. This check cannot be turned off.

Owns the policy and its allow rules. `gate.py` applies it to every socket.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from siteatlas.errors import AddressError, ConfigurationError, EgressDenied
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_site, parse_url
from siteatlas.settings import MAX_PORT

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_PRIVATE_IPV4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV6 = tuple(
    IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
)
# Clouds answer here with the credentials of the machine.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.169.123",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.0.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
# Forms that carry an IPv4 address inside an IPv6 one: a range written for IPv6 must not open them.
_EMBEDDING_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
    )
)


@functools.lru_cache(maxsize=4096)
def read_ip(text: str) -> IpAddress | None:
    """The IP address that a text denotes; None for names and for addresses with a zone."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=4096)
def is_public(ip: IpAddress) -> bool:
    """Whether an address belongs to a host on the public internet."""
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _PRIVATE_IPV4)
    return ip in _GLOBAL_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)


def never_opens(ip: IpAddress) -> bool:
    """Whether no allow rule may open this address: cloud metadata and IPv4 in disguise."""
    if ip in _METADATA:
        return True
    # `::` and `::1`, the unspecified address and loopback, lie among the oldest embedding forms.
    if not isinstance(ip, IPv6Address) or int(ip) <= 1:
        return False
    return any(ip in network for network in _EMBEDDING_IPV6)


def too_wide(network: IpNetwork) -> bool:
    """Whether an allow rule for this range would open more than one private network."""
    if isinstance(network, IPv4Network):
        return network.prefixlen < 8
    if network.prefixlen == network.max_prefixlen:
        return False
    return not any(
        network.subnet_of(IPv6Network(wider)) for wider in ("fc00::/7", "fe80::/10", "2000::/3")
    )


# Second levels under which countries register names: example.co.uk, example.com.br.
REGISTRIES = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "id", "ind", "info", "ltd"}
    | {"me", "mil", "ne", "net", "nom", "or", "org", "plc", "sch", "web"}
)


def registrable_domain(host: str) -> str:
    """The last two labels of a host, three below a country's registry; an address is itself."""
    name = host.strip("[]").rstrip(".").lower()
    if read_ip(name) is not None:
        return name
    labels = name.split(".")
    return ".".join(labels[-3:] if _is_registry_suffix(labels[-2:]) else labels[-2:])


def is_registrable(host: str) -> bool:
    """Whether a host is a registrable domain or below one, not `com` or `co.uk`."""
    labels = registrable_domain(host).split(".")
    return len(labels) > 1 and not labels[-1].isdigit() and not _is_registry_suffix(labels)


def _is_registry_suffix(labels: list[str]) -> bool:
    return (
        len(labels) == 2  # such as co.uk
        and len(labels[-1]) == 2
        # There, names are registered directly, so that web.de is a name like any other.
        and labels[-1] not in {"ch", "de", "dk", "eu", "nl"}
        and labels[0] in REGISTRIES
    )


log = get_logger("net")

WEB_PORTS = frozenset({80, 443, 8080, 8443})
SPECIAL_SUFFIXES = frozenset(
    {
        *("alt", "arpa", "consul", "corp", "home", "internal", "intranet", "invalid", "lan"),
        *("local", "localdomain", "localhost", "mail", "onion", "private", "svc", "test"),
    }
)

SELF_CHECK = (
    "http://127.0.0.1/",
    "http://169.254.169.254/",
    "http://10.0.0.1/",
    "http://[::ffff:127.0.0.1]/",
    "http://localhost/",
)

# Without a port, an entry is for both.
_USUAL_PORTS = (80, 443)
_NO_ENTRY = "is not HOST[:PORT], *.DOMAIN[:PORT], CIDR[:PORT] or, for IPv6, such as [::1]:8080."

_match_entry = re.compile(r"(?P<target>.+):(?P<port>\*|[0-9]{1,5})", re.DOTALL).fullmatch


class Refusal(StrEnum):
    """Why an address is refused before anything is looked up."""

    PORT = "port"
    RESERVED_NAME = "reserved_name"
    PRIVATE_ADDRESS = "private_address"
    NEVER_OPENS = "never_opens"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class AllowRule:
    """An allowed host or range, with one port (None: every port).

    A wildcard is the end of its names, from the dot on; in a scan, the one that was submitted.
    """

    target: str | IpNetwork
    port: int | None
    by_wildcard: bool = False

    def matches(self, host: str, port: int) -> bool:
        """Whether this rule names the host, given as name or as address, and the port."""
        return self.port in {None, port} and self.names(host)

    def names(self, host: str) -> bool:
        """Whether the host is this rule's host or lies in its range."""
        if isinstance(self.target, str):
            is_end = self.target.startswith(".")
            return host.endswith(self.target) if is_end else host == self.target
        ip = read_ip(host)
        return ip is not None and ip in self.target

    def __str__(self) -> str:
        port = "*" if self.port is None else self.port
        if isinstance(self.target, str):
            return f"{'*' * self.target.startswith('.')}{self.target}:{port}"
        single = self.target.prefixlen == self.target.max_prefixlen
        text = str(self.target.network_address if single else self.target)
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The default egress rules, plus what the operator allowed or denied.

    Names by wildcard may lead into `ranges`, which the policy of a scan may open to nothing else.
    """

    rules: tuple[AllowRule, ...] = ()
    refused_sockets: frozenset[tuple[str, int]] = frozenset()
    ranges: tuple[AllowRule, ...] = ()

    def __hash__(self) -> int:
        # Quick, for each request asks: few policies of one length meet in one table.
        return hash((len(self.rules), self.refused_sockets))

    @classmethod
    def from_text(cls, text: str) -> EgressPolicy:
        """Read the entries of an allow list, by commas; no text is the default policy."""
        return cls().with_allowed(*(entry for entry in text.split(",") if entry.strip()))

    def with_allowed(self, *entries: str) -> EgressPolicy:
        """This policy with more allow rules."""
        added = (rule for entry in entries for rule in _parse_allow_entry(entry.strip()))
        rules = tuple(dict.fromkeys((*self.rules, *added)))
        ranges = tuple(rule for rule in rules if not isinstance(rule.target, str))
        return replace(self, rules=rules, ranges=ranges)

    def with_refused_socket(self, host: str, port: int) -> EgressPolicy:
        """This policy without the one address and port that this service itself listens on."""
        own = (_plain_host(host), port)
        return replace(self, refused_sockets=self.refused_sockets | {own})

    def for_site(self, address: WebAddress) -> EgressPolicy:
        """The policy of one scan: only rules for the host or range that the site itself is in.

        So a public site cannot direct requests to a private range by redirect, robots.txt or
        sitemap. Rules of the same host or range with other ports stay. Of the names that a
        wildcard allows, only the submitted one is left.
        """
        zones = {r.target for r in self.rules if r.matches(address.host, address.port)}
        kept = (r for r in self.rules if r.target in zones)
        rules = (replace(r, target=address.host) if r.by_wildcard else r for r in kept)
        return replace(self, rules=tuple(dict.fromkeys(rules)))

    def require(self, address: WebAddress) -> None:
        """Raise EgressDenied like `check`, and log the attempt."""
        try:
            self.check(address)
        except EgressDenied:
            note_denial(address.host, address.host, address.port, "address")
            raise

    def check(self, address: WebAddress) -> None:
        """Raise EgressDenied if the address alone shows that it may not be contacted."""
        if self.refusal(address.host, address.port) is not None:
            raise EgressDenied(at=(address.host, address.port, ""))

    def refusal(self, host: str, port: int) -> Refusal | None:
        """Why the address alone shows that it may not be contacted; nothing is looked up.

        For the person who typed the address. API clients only learn that it is refused.
        """
        ip = read_ip(host)
        if self._refuses(host, ip, port):
            return Refusal.OURS
        if ip is not None and never_opens(ip):
            return Refusal.NEVER_OPENS
        if self.is_listed(host, port):
            return None
        if ip is not None and not is_public(ip):
            return Refusal.PRIVATE_ADDRESS
        if ip is None and _is_special(host):
            return Refusal.RESERVED_NAME
        return None if port in WEB_PORTS else Refusal.PORT

    def check_socket(self, host: str, ip: str, port: int) -> None:
        """Raise EgressDenied unless a socket to `ip` and `port` may be opened for `host`."""
        if not self._permits(host, ip, port):
            raise EgressDenied(at=(host, port, ip))

    def _permits(self, host: str, ip: str, port: int) -> bool:
        found = read_ip(ip)
        if found is None or never_opens(found) or self._refuses(host, found, port):
            return False
        # A range opens its addresses, and not the names that lead to them.
        if self._allows(host, port):
            return True
        if self._allows_by_wildcard(host, port) and self._is_in_ranges(ip, port):
            return True
        if port not in WEB_PORTS or not is_public(found):
            return False
        return read_ip(host) is not None or not _is_special(host)

    def check_records(self, host: str, ips: Sequence[str], port: int) -> None:
        """Raise EgressDenied unless every address of a name passes `check_socket`.

        Of a name by wildcard, all addresses are in listed ranges, or none is.
        """
        for ip in ips:
            self.check_socket(host, ip, port)
        if self._allows_by_wildcard(host, port) and not self._allows(host, port):
            outside = [ip for ip in ips if not self._is_in_ranges(ip, port)]
            if 0 < len(outside) < len(ips):
                raise EgressDenied(at=(host, port, outside[0]))

    def explain(self, denied: EgressDenied, site: WebAddress) -> tuple[str, str | None]:
        """Why a scan of `site` was refused this, and the entry that opens it; for the operator."""
        host, port, found = denied.at or (site.host, site.port, "")
        shown = f"[{host}]" if ":" in host else host
        entry: str | None = shown if port in _USUAL_PORTS else f"{shown}:{port}"
        reason, ip = self.refusal(host, port), read_ip(found)
        rule = next((one for one in self.rules if one.matches(host, port)), None)
        if ip is not None and never_opens(ip):
            reason = reason or Refusal.NEVER_OPENS
        if reason is not None:
            why = _refusal_reason(reason, host, port)
            # Names that lead nowhere, in a private network as little as in public.
            dead = host.rpartition(".")[2] in {"alt", "invalid", "onion"}
            entry = None if dead or reason in {Refusal.NEVER_OPENS, Refusal.OURS} else entry
        elif rule is not None and not self.for_site(site).is_listed(host, port):
            why = f"the entry {rule} is only for scans of what it names; scan {shown} itself."
            entry = None
        elif ip is None:
            why = "its DNS records or a redirect lead to an address that is not public."
        elif rule is not None:
            why = f"the entry {rule} needs all its addresses in listed ranges; {ip} is in none."
        else:
            why = f"it leads to {ip}, which is not public. A range allows addresses, not names."
        is_site = (host, port) == (site.host, site.port)
        return why if is_site else f"{shown}:{port}: {why}", entry

    def is_own(self, address: WebAddress) -> bool:
        """Whether the operator allowed exactly this host or address: no delay between requests."""
        return self._allows(address.host, address.port)

    def is_local_name(self, host: str, port: int) -> bool:
        """Whether the operator allowed exactly this name, and it ends in `.localhost`.

        Such a name is this machine (RFC 6761), also where no name server knows that.
        """
        return host.endswith(".localhost") and self._allows(host, port)

    def is_listed(self, host: str, port: int) -> bool:
        """Whether the operator allowed this host, also by wildcard: it is not for the proxy."""
        return any(rule.matches(host, port) for rule in self.rules)

    @property
    def entries(self) -> tuple[str, ...]:
        """The allow rules as text, for people."""
        return tuple(str(rule) for rule in self.rules)

    def _refuses(self, host: str, ip: IpAddress | None, port: int) -> bool:
        refused = self.refused_sockets
        return bool(refused) and ((host, port) in refused or (str(ip), port) in refused)

    def _allows(self, host: str, port: int) -> bool:
        return any(rule.matches(host, port) for rule in self.rules if not rule.by_wildcard)

    def _allows_by_wildcard(self, host: str, port: int) -> bool:
        return any(rule.matches(host, port) for rule in self.rules if rule.by_wildcard)

    def _is_in_ranges(self, ip: str, port: int) -> bool:
        return any(rule.matches(ip, port) for rule in self.ranges)


def note_denial(host: str, to: str, port: int, reason: str) -> None:
    """Log why something was refused; the reason is shown nowhere else."""
    log.warning("egress_denied", host=host, to=to, port=port, reason=reason)


def _refusal_reason(refusal: Refusal, host: str, port: int) -> str:
    names = f"names ending in .{host.rpartition('.')[2]}" if "." in host else "names without a dot"
    return {
        Refusal.PORT: f"port {port} is not one of {', '.join(map(str, sorted(WEB_PORTS)))}.",
        Refusal.RESERVED_NAME: f"{names} are not public.",
        Refusal.PRIVATE_ADDRESS: "it is not a public address.",
        Refusal.NEVER_OPENS: "it cannot be allowed by any setting.",
        Refusal.OURS: "it is the address of this service.",
    }[refusal]


def is_private_host(host: str) -> bool:
    """Whether a host, name or address, never leads to the public web."""
    ip = read_ip(_without_brackets(host))
    return _is_special(host) if ip is None else not is_public(ip)


def self_check() -> None:
    """Raise AssertionError unless the default policy refuses five addresses; for every start."""
    policy = EgressPolicy()
    for text in SELF_CHECK:
        try:
            policy.check(parse_url(text))
        except EgressDenied:
            continue
        raise AssertionError(f"the default egress policy lets {text} through")


def _is_special(host: str) -> bool:
    """Names that never lead to the public web: single labels and special-use domains."""
    return "." not in host or host.rpartition(".")[2] in SPECIAL_SUFFIXES


def _without_brackets(host: str) -> str:
    return host.replace("[", "").replace("]", "")


def _plain_host(host: str) -> str:
    ip = read_ip(_without_brackets(host))
    return str(ip) if ip is not None else host.lower().removesuffix(".")


def _parse_allow_entry(entry: str) -> list[AllowRule]:
    match = _match_entry(entry)
    target, port = (match["target"], match["port"]) if match else (entry, "")
    if port not in {"", "*"} and not 1 <= int(port) <= MAX_PORT:
        raise ConfigurationError(f"{entry!r} has a port that is not a number from 1 to 65535.")
    if ":" in target and "/" not in target and not target.startswith("["):
        raise ConfigurationError(f"{entry!r} {_NO_ENTRY}")
    read = _read_target(target, entry)
    by_wildcard = isinstance(read, str) and read.startswith(".")
    ports = (None,) if port == "*" else (int(port),) if port else _USUAL_PORTS
    return [AllowRule(read, one, by_wildcard) for one in ports]


def _read_target(target: str, entry: str) -> str | IpNetwork:
    if target.startswith("*."):
        name = _read_name(target[2:], entry)
        if not is_registrable(name) and name not in SPECIAL_SUFFIXES:
            raise ConfigurationError(f"{entry!r} needs a domain of yours, as *.corp.example.")
        return f".{name}"
    if "/" not in target and read_ip(_without_brackets(target)) is None:
        return _read_name(target, entry)
    try:
        network = ip_network(_without_brackets(target))
    except ValueError as error:
        raise ConfigurationError(_bad_range_message(_without_brackets(target), entry)) from error
    if too_wide(network):
        raise ConfigurationError(_large_range_message(network, entry))
    if network.num_addresses == 1 and never_opens(network.network_address):
        raise ConfigurationError(f"{entry!r} is an address that cannot be allowed.")
    return network


def _bad_range_message(text: str, entry: str) -> str:
    try:
        meant = ip_network(text, strict=False)
    except ValueError:
        return f"{entry!r} {_NO_ENTRY}"
    if too_wide(meant):
        return _large_range_message(meant, entry)
    return f"{entry!r} has host bits set; did you mean {meant}?"


def _large_range_message(network: IpNetwork, entry: str) -> str:
    if isinstance(network, IPv4Network):
        return f"{entry!r} is too large; the largest allowed range is a /8."
    return f"{entry!r} is too large; it must lie in fc00::/7, fe80::/10 or 2000::/3."


def _read_name(target: str, entry: str) -> str:
    try:
        return parse_url(f"http://{target}/").host
    except AddressError as error:
        raise ConfigurationError(f"{entry!r} does not name a host.") from error


def parse_allowed_site(text: str, policy: EgressPolicy) -> WebAddress:
    """Parse the address of a site and check it against the policy; raise AddressError."""
    address = parse_site(text)
    policy.for_site(address).require(address)
    return address
