"""The network options of `siteatlas scan`: allowed hosts, headers, proxy and request rate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from siteatlas.cli.terminal.output import print_message
from siteatlas.errors import ConfigurationError
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.from_settings import configured_proxy
from siteatlas.net.operator_headers import read_header_lines
from siteatlas.net.politeness import Politeness
from siteatlas.net.resolver import DnsResolver
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.settings import Settings


def policy_with_allowed(usual: EgressPolicy, allow: list[str]) -> EgressPolicy:
    """The egress policy of a scan, with the hosts given by `--allow`."""
    if not allow:
        return usual
    with _name_option("--allow"):
        policy = usual.with_allowed(*allow)
    print_message(f"Allowed for this scan: {', '.join(allow)}")
    return policy


@contextmanager
def _name_option(option: str) -> Iterator[None]:
    """Name the option of the scan in the error that an invalid value causes."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error.message}") from error


def scan_analyzer(
    settings: Settings, policy: EgressPolicy, header: list[str], rate: float | None
) -> SitemapAnalyzer:
    """The analyzer of a scan, with the proxy, headers and rate of its options."""
    proxy = configured_proxy(settings)
    if proxy is not None:
        print_message(f"Using the proxy {proxy}, which resolves the host names.")
    return SitemapAnalyzer(
        policy,
        _scan_politeness(settings, rate),
        user_agent=settings.user_agent,
        headers=_request_headers(header, policy),
        proxy=proxy,
        resolver=DnsResolver(settings.name_servers),
    )


def _request_headers(lines: list[str], policy: EgressPolicy) -> dict[str, str]:
    """The headers given by `--header`, which a scan sends to allowed hosts only."""
    with _name_option("--header"):
        headers = read_header_lines(lines)
    if headers and not policy.rules:
        raise ConfigurationError("Headers are sent only to hosts given with --allow.")
    return headers


def _scan_politeness(settings: Settings, rate: float | None) -> Politeness:
    """The request rate of a scan: that of `--rate`, or that of the settings."""
    if rate is not None:
        # An explicit rate applies to every host.
        return Politeness(1 / rate, settings.host_connections, exempt_own=False)
    return Politeness(settings.host_delay, settings.host_connections)
