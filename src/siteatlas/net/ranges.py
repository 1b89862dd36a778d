"""Which IP addresses belong to the public internet, and which may never be contacted.

Defined here because the answers of `ipaddress` differ between Python versions.
"""

from __future__ import annotations

import functools
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
# The loopback address and the unspecified one lie among the oldest of these forms.
_PLAIN_LOW_IPV6 = frozenset({IPv6Address("::"), IPv6Address("::1")})
_RANGES_THAT_MAY_BE_OPENED = tuple(
    IPv6Network(text) for text in ("fc00::/7", "fe80::/10", "2000::/3")
)
_MIN_IPV4_PREFIX = 8


@functools.lru_cache(maxsize=4096)
def read_ip(text: str) -> IpAddress | None:
    """The IP address that a text denotes; None for names and for addresses with a zone."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_public(ip: IpAddress) -> bool:
    """Whether an address belongs to a host on the public internet."""
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _PRIVATE_IPV4)
    return ip in _GLOBAL_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)


def never_opens(ip: IpAddress) -> bool:
    """Whether no allow rule may open this address: cloud metadata and IPv4 in disguise."""
    if ip in _METADATA:
        return True
    if not isinstance(ip, IPv6Address) or ip in _PLAIN_LOW_IPV6:
        return False
    return any(ip in network for network in _EMBEDDING_IPV6)


def too_wide(network: IpNetwork) -> bool:
    """Whether an allow rule for this range would open more than one private network."""
    if isinstance(network, IPv4Network):
        return network.prefixlen < _MIN_IPV4_PREFIX
    if network.prefixlen == network.max_prefixlen:
        return False
    return not any(network.subnet_of(wider) for wider in _RANGES_THAT_MAY_BE_OPENED)
