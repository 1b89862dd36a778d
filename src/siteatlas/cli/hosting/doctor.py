"""The checks of `siteatlas doctor`: each says whether something is right, and what to do if not.

`doctor_database` has those of the database.
"""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path

from siteatlas.access.keys import ADMIN_KEY_NAME
from siteatlas.cli.hosting.listener import CREATE_KEY, is_loopback, listen, local_url
from siteatlas.errors import (
    AddressError,
    DnsError,
    DnsNameUnknown,
    EgressDenied,
    PortTaken,
    ProxyFailed,
    SiteatlasError,
    TlsError,
    TlsNotSpoken,
)
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import HttpClient
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.from_settings import configured_proxy
from siteatlas.net.politeness import Politeness
from siteatlas.net.resolver import DnsResolver
from siteatlas.settings import Settings

GIGABYTE = 10**9
FREE_WARN, FREE_FAIL = 5 * GIGABYTE, GIGABYTE // 2
HEALTH_SECONDS = 3.0
UNIT_STEP = 1000
LOCAL_ACCESS = {
    True: "requests need a key",
    False: "users of this machine need no key",
    None: "whether requests need a key is not known",
}


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the setup, and what to do about it."""

    check: str
    state: State
    message: str
    advice: str | None = None


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, State.OK, message)


def warn(check: str, message: str, advice: str) -> Finding:
    """It works, but something may go wrong."""
    return Finding(check, State.WARN, message, advice)


def fail(check: str, message: str, advice: str | None = None) -> Finding:
    """It does not work."""
    return Finding(check, State.FAIL, message, advice)


def size_in_words(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if number < UNIT_STEP:
            return f"{number:.3g} {unit}"
        number /= UNIT_STEP
    return f"{number:.3g} GB"


def check_disk(settings: Settings) -> Finding:
    """The free space of the embedded database."""
    if settings.database_url is not None:
        return ok("disk", "The database has its own server; watch the disk there.")
    place = settings.data_dir.expanduser()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    message = f"{size_in_words(free)} free for {settings.data_dir}."
    if free < FREE_FAIL:
        return fail("disk", message, "Free some space: PostgreSQL stops when the disk is full.")
    if free < FREE_WARN:
        return warn("disk", message, "Free some space, or move SITEATLAS_DATA_DIR.")
    return ok("disk", message)


def check_access(settings: Settings, *, is_closed: bool | None) -> Finding:
    """Who can use the service; `is_closed` is None if the database does not say."""
    file = settings.admin_key_file
    if file is not None and not _is_readable(file):
        return fail("access", f"{ADMIN_KEY_NAME}: {file} cannot be read.", "Check its permissions.")
    if is_loopback(settings.host):
        return ok("access", f"Listens on {settings.host}; {LOCAL_ACCESS[is_closed]}.")
    if is_closed is False and file is None:
        message = f"{settings.host} can be reached from other machines, but there is no key."
        return fail("access", message, f"Create one: {CREATE_KEY}")
    if not settings.public_url.startswith("https:"):
        message = f"{settings.host} can be reached from other machines without TLS."
        advice = "Put a reverse proxy with TLS in front and set SITEATLAS_PUBLIC_URL to its https"
        return warn("access", message, f"{advice} address.")
    return ok("access", f"Listens on {settings.host}; browsers use {settings.public_url}.")


def _is_readable(file: Path) -> bool:
    """Whether this process can read a file."""
    try:
        with file.open("rb"):
            return True
    except OSError:
        return False


def check_port(settings: Settings) -> Finding:
    """Whether the port is free or used by Siteatlas."""
    where = f"{settings.host}:{settings.port}"
    try:
        with listen(settings.host, settings.port):
            return ok("port", f"{where} is free.")
    except PortTaken:
        if _answers_as_siteatlas(settings):
            return ok("port", f"Siteatlas answers on {where}.")
        return fail(
            "port", f"{where} is used by another program.", "Choose another SITEATLAS_PORT."
        )
    except SiteatlasError as error:
        return fail("port", error.message, "Correct SITEATLAS_HOST and SITEATLAS_PORT.")


def _answers_as_siteatlas(settings: Settings) -> bool:
    """Whether the health check of a running service answers; HTTP_PROXY is ignored."""
    url = f"{local_url(settings.host, settings.port)}/health"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=HEALTH_SECONDS) as answer:
            return b'"status"' in answer.read(1000)
    except (OSError, HTTPException, ValueError):
        return False


async def check_network(settings: Settings, site: str) -> list[Finding]:
    """Whether a site can be resolved and requested, within the egress policy."""
    try:
        address = parse_site(site)
    except AddressError as error:
        return [fail("site", error.message, "Name another site with --site.")]
    proxy = configured_proxy(settings)
    request = _check("egress", address, _request(settings, address))
    if proxy is not None:
        return [ok("dns", "The proxy resolves names."), await request]
    return [await _check("dns", address, _resolve(settings, address.host)), await request]


async def _check(check: str, address: WebAddress, work: Awaitable[str]) -> Finding:
    """The finding of a check that returns a message or raises an error."""
    try:
        return ok(check, await work)
    except SiteatlasError as error:
        return fail(check, error.message, _network_advice(error, address))


def _network_advice(error: SiteatlasError, address: WebAddress) -> str:
    """What to do if a site cannot be resolved or requested."""
    match error:
        case EgressDenied():
            return f"If this is your own site, set SITEATLAS_EGRESS_ALLOW={address.host_port}"
        case TlsNotSpoken():
            return f"Request the site without TLS: --site http://{address.host_port}"
        case TlsError():
            return "Check the certificate of the site, or try another site with --site."
        case DnsNameUnknown():
            return "Check the name, or try another site with --site."
        case DnsError():
            return "Check the name servers, or set SITEATLAS_DNS_SERVERS."
        case ProxyFailed():
            return "Check SITEATLAS_PROXY and the proxy."
    return "Check the firewall, or set SITEATLAS_PROXY. Try another site with --site."


async def _resolve(settings: Settings, host: str) -> str:
    """Resolve a name as scans do."""
    addresses = await DnsResolver(settings.name_servers).addresses(host)
    return f"{host} is {', '.join(addresses[:3])}."


async def _request(settings: Settings, address: WebAddress) -> str:
    """Request the robots.txt of a site as scans do."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    client = HttpClient(
        policy,
        Politeness(),
        user_agent=settings.user_agent,
        resolver=DnsResolver(settings.name_servers),
        proxy=configured_proxy(settings),
    )
    target = parse_site(f"{address.origin}/robots.txt")
    policy.check(target)
    async with client, client.get(target) as response:
        return f"{address.host} answers with HTTP status {response.status}."
