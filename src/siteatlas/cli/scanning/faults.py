"""What is said when a site or file gave nothing: by the name that was typed, with a way out.

The words of other commands are in `errors.py`.
"""

from __future__ import annotations

from siteatlas.cli.terminal.errors import advice_for, print_error_with_advice
from siteatlas.errors import AddressError, DnsError, EgressDenied, SiteatlasError
from siteatlas.logs import clean_text
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import WEB_PORTS, EgressPolicy, Refusal
from siteatlas.net.ranges import read_ip

NO_FILE = ", and there is no file of this name here."
# Endings of names that lead nowhere, in a private network as little as in public.
DEAD_ENDINGS = frozenset({"alt", "invalid", "onion"})
PORTS = ", ".join(map(str, sorted(WEB_PORTS)))
REFUSED_LATER = "its DNS records or a redirect lead to an address that is not public."


def print_scan_error(
    error: SiteatlasError, typed: str, policy: EgressPolicy, *, may_be_file: bool = True
) -> None:
    """One line what went wrong with what was typed; one line what to do."""
    message = error.message
    advice = advice_for(error)
    if type(error) is EgressDenied:
        message, advice = _refusal_words(error, parse_site(typed), policy)
    if may_be_file and _means_neither(error, typed):
        message = message.removesuffix(".") + NO_FILE
    print_error_with_advice(error, f"{shown_site(typed)}: {message}", advice)


def shown_site(typed: str) -> str:
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


def _refusal_words(
    error: EgressDenied, address: WebAddress, policy: EgressPolicy
) -> tuple[str, str | None]:
    """Why an address is refused, and how to open it; no advice for one that never opens."""
    refusal = policy.refusal(address)
    has_words = error.message != EgressDenied().message
    why = error.message
    if not has_words:
        why = f"{error.message.removesuffix('.')}: {_why(refusal, address)}"
    dead = address.host.rpartition(".")[2] in DEAD_ENDINGS
    if policy.is_own(address) or dead or refusal in {Refusal.NEVER_OPENS, Refusal.OURS}:
        return why, None
    return why, f"If this is your own site, allow it: --allow {host_port(address)}"


def _why(refusal: Refusal | None, address: WebAddress) -> str:
    match refusal:
        case Refusal.PORT:
            return f"port {address.port} is not one of the web ports {PORTS}."
        case Refusal.RESERVED_NAME if "." not in address.host:
            return "a name without a dot is not public."
        case Refusal.RESERVED_NAME:
            return f"names ending in .{address.host.rpartition('.')[2]} are not public."
        case Refusal.PRIVATE_ADDRESS:
            return "it is not a public address."
        case Refusal.NEVER_OPENS:
            return "it cannot be allowed by any setting."
        case Refusal.OURS:
            return "it is the address of this service."
        case None:
            return REFUSED_LATER


def host_port(address: WebAddress) -> str:
    """The host and port as an entry of the allow list."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
