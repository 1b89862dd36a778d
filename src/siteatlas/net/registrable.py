"""The name under which somebody holds a whole family of hosts, for sharing slots between sites.

An estimate without the list of public suffixes. Where it joins hosts of different owners, as below
a hosting service, they only take turns; nothing is refused because of it.
"""

from __future__ import annotations

from ipaddress import ip_address

COUNTRY_CODE_CHARS = 2
# Second levels under which countries register names: example.co.uk, example.com.br.
REGISTRIES = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "id", "ind", "info", "ltd"}
    | {"me", "mil", "ne", "net", "nom", "or", "org", "plc", "sch", "web"}
)


def registrable_domain(host: str) -> str:
    """The last two labels of a host, three below a country's registry; an address is itself."""
    name = host.strip("[]").rstrip(".").lower()
    if _is_address(name):
        return name
    labels = name.split(".")
    below_registry = (
        len(labels) > COUNTRY_CODE_CHARS
        and len(labels[-1]) == COUNTRY_CODE_CHARS
        and labels[-2] in REGISTRIES
    )
    return ".".join(labels[-3:] if below_registry else labels[-2:])


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
