"""An estimate of the registrable domain of a host, without the public suffix list.

It decides which hosts share slots, where hosts of different owners on one hosting service merely
take turns, which hosts above and beside a site belong to it, and whose limit a foreign document
counts against. No site is refused because of it.
"""

from __future__ import annotations

from siteatlas.net.ranges import read_ip

COUNTRY_CODE_CHARS = 2
# Second levels under which countries register names: example.co.uk, example.com.br.
REGISTRIES = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "id", "ind", "info", "ltd"}
    | {"me", "mil", "ne", "net", "nom", "or", "org", "plc", "sch", "web"}
)
# Countries under which names are registered directly, so that web.de is a name like any other.
WITHOUT_REGISTRIES = frozenset({"ch", "de", "dk", "eu", "nl"})


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
    """Whether two labels are the suffix of a country's registry, such as `co.uk`."""
    return (
        len(labels) == 2  # noqa: PLR2004 such as co.uk
        and len(labels[-1]) == COUNTRY_CODE_CHARS
        and labels[-1] not in WITHOUT_REGISTRIES
        and labels[0] in REGISTRIES
    )
