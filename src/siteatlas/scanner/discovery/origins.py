"""The origins that may serve a site, and which one to try after others failed."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from siteatlas.errors import (
    ConnectionFailed,
    DnsError,
    EgressDenied,
    HttpProtocolError,
    SiteatlasError,
    Timeout,
    TlsError,
    TlsNotSpoken,
)
from siteatlas.net.address import WebAddress, bare_host, parse_url

TRY_NEXT_ORIGIN_ERRORS = (
    ConnectionFailed,
    DnsError,
    EgressDenied,
    HttpProtocolError,
    Timeout,
    TlsError,
)
TRY_OTHER_HOST_ERRORS = (ConnectionFailed, DnsError, TlsError)


def candidate_origins(site: WebAddress) -> Iterator[WebAddress]:
    """The origins that may serve a site, the most likely first."""
    for host in (site.host, other_host(site.host)):
        if host is not None:
            for origin in _origins_by_scheme(site):
                yield parse_url(origin.replace(site.host, host, 1) + "/")


def other_host(host: str) -> str | None:
    """The host with `www.` if it has none, without it if it has; None for addresses."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if "." not in host:
            return None
        bare = bare_host(host)
        return bare if host != bare else "www." + bare
    return None


def is_worth_trying(origin: WebAddress, site: WebAddress, errors: Sequence[SiteatlasError]) -> bool:
    """Whether an origin may succeed after others failed with these errors.

    A certificate that cannot be trusted is never a reason to continue without TLS.
    """
    if origin.scheme != site.scheme and any(map(_is_untrusted_certificate, errors)):
        return False
    if origin.host != site.host:
        return any(isinstance(error, TRY_OTHER_HOST_ERRORS) for error in errors)
    return not any(isinstance(error, DnsError) for error in errors)


def _is_untrusted_certificate(error: SiteatlasError) -> bool:
    """Whether an origin failed because of its certificate, so that no other scheme is tried."""
    return isinstance(error, TlsError) and not isinstance(error, TlsNotSpoken)


def _origins_by_scheme(site: WebAddress) -> list[str]:
    """The origin of the site and, if neither scheme nor port say https, also with http."""
    fixed = site.scheme_given or (site.port_given and site.port == 443)  # noqa: PLR2004
    if fixed:
        return [site.origin]
    return [site.origin, "http" + site.origin.removeprefix("https")]
