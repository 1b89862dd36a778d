"""What is said when a site or file gave nothing: by the name that was typed, with a way out.

The words of other commands are in `border.py`.
"""

from __future__ import annotations

from siteatlas.cli.border import advice_for, complain_twice
from siteatlas.errors import AddressError, DnsError, EgressDenied, SiteatlasError
from siteatlas.logs import clean_text
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.ranges import never_opens, read_ip

NO_FILE = ", and there is no file of this name here."


def say_fault(
    error: SiteatlasError, typed: str, policy: EgressPolicy, *, may_be_file: bool = True
) -> None:
    """One line what went wrong with what was typed; one line what to do."""
    message = error.message
    if may_be_file and _means_neither(error, typed):
        message = message.removesuffix(".") + NO_FILE
    advice = _egress_advice(typed, policy) if type(error) is EgressDenied else advice_for(error)
    complain_twice(error, f"{_shown(typed)}: {message}", advice)


def _shown(typed: str) -> str:
    """What was typed, without a user name or a secret that may stand in it."""
    return clean_text(f"***@{typed.rpartition('@')[2]}" if "@" in typed else typed)


def _means_neither(error: SiteatlasError, typed: str) -> bool:
    """Whether a name that is no site may have been meant for a file."""
    if "://" in typed:
        return False
    if isinstance(error, (EgressDenied, DnsError)):
        address = parse_site(typed)
        unusual = isinstance(error, DnsError) or "." not in address.host
        return unusual and not address.port_given and read_ip(address.host) is None
    return type(error) is AddressError


def _egress_advice(typed: str, policy: EgressPolicy) -> str | None:
    """How to open the address; None for one that is open already or never opens."""
    address = parse_site(typed)
    ip = read_ip(address.host)
    if policy.is_own(address) or (ip is not None and never_opens(ip)):
        return None
    return f"If this is your own site, allow it: --allow {host_port(address)}"


def host_port(address: WebAddress) -> str:
    """The host and port as an entry of the allow list."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
