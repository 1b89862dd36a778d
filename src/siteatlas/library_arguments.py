"""Checks the arguments of the Python API, `siteatlas.scan` and `siteatlas.scan_sync`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, get_args

from siteatlas.errors import ConfigurationError, InputError, UrlLimitReached
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.child_filter import ChildFilter
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode

MAX_USER_AGENT_CHARS = 400
ALLOW_WORDS = "allow must be a list of strings such as '127.0.0.1:8000'."

Probe = Literal["auto", "full"]


@dataclass(frozen=True, slots=True)
class ScanCall:
    """The checked arguments of a call of `scan` or `scan_sync`."""

    address: WebAddress
    policy: EgressPolicy
    options: ScanOptions
    user_agent: str
    strict: bool

    @property
    def report_name(self) -> str:
        """The name of the site in the report of `scan` and `scan_sync`."""
        return self.address.domain if self.address.is_site_root else self.address.url

    @property
    def expected_reasons(self) -> set[str]:
        """Why the result of `scan` and `scan_sync` may be partial as the caller requested it."""
        expected: set[str] = set()
        if self.options.max_urls is not None:
            expected.add(UrlLimitReached.code)
        if self.options.child_filter is not None:
            expected.add(ProblemCode.SITEMAPS_FILTERED.value)
        return expected


def check_call(
    site: str,
    *,
    only: bool,
    max_urls: int | None,
    allow: Iterable[str],
    user_agent: str,
    probe: Probe,
    strict: bool,
    sitemaps: Iterable[str],
    skip_sitemaps: Iterable[str],
    sitemaps_since: date | None,
) -> ScanCall:
    """Check the arguments of `scan` or `scan_sync`; raise InputError for invalid ones."""
    _check_arguments(site, max_urls, probe)
    _check_boolean_arguments(only=only, strict=strict)
    _check_user_agent(user_agent)
    address = parse_site(site)
    policy = _parse_allow_argument(allow)
    policy.check(address)
    if only and address.is_site_root:
        raise InputError("only=True needs the address of a sitemap, not of a site.")
    document = address.url if only else None
    child_filter = ChildFilter.of(
        _check_patterns("sitemaps", sitemaps),
        _check_patterns("skip_sitemaps", skip_sitemaps),
        _check_since(sitemaps_since),
    )
    options = ScanOptions(
        max_urls=max_urls, probe=probe, only_document=document, child_filter=child_filter
    )
    return ScanCall(address, policy, options, user_agent, strict)


def _check_arguments(site: object, max_urls: int | None, probe: object) -> None:
    """Refuse arguments of `scan` and `scan_sync` that no type checker saw."""
    if not isinstance(site, str):
        raise InputError("site must be a string such as 'example.com'.")
    if max_urls is not None and (type(max_urls) is not int or max_urls < 1):
        raise InputError("max_urls must be a positive integer, or None.")
    if probe not in get_args(Probe):
        raise InputError("probe must be 'auto' or 'full'.")


def _check_boolean_arguments(**flags: object) -> None:
    """Refuse flags of `scan` and `scan_sync` that are not booleans."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} must be True or False.")


def _check_user_agent(user_agent: object) -> None:
    """Refuse a `user_agent` argument of `scan` and `scan_sync` that no header can hold."""
    if not isinstance(user_agent, str) or not user_agent.strip():
        raise InputError("user_agent must be a string such as 'my-program/1.0 (me@example.com)'.")
    if len(user_agent) > MAX_USER_AGENT_CHARS:
        raise InputError(f"user_agent must have at most {MAX_USER_AGENT_CHARS} characters.")
    if not (user_agent.isascii() and user_agent.isprintable()):
        raise InputError("user_agent must be ASCII, on one line and without control characters.")


def _check_patterns(name: str, patterns: object) -> list[str]:
    """The patterns of an argument of `scan` and `scan_sync`; a single one may be a string."""
    listed = [patterns] if isinstance(patterns, str) else patterns
    texts = list(listed) if isinstance(listed, Iterable) else [None]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) != len(texts):
        raise InputError(f"{name} must be a list of strings such as '*/blog-*'.")
    return found


def _check_since(since: object) -> datetime | None:
    """The `sitemaps_since` argument of `scan` and `scan_sync` as a time; a date is its midnight."""
    if since is None or isinstance(since, datetime):
        return since
    if not isinstance(since, date):
        raise InputError("sitemaps_since must be a date or a datetime, or None.")
    return datetime(since.year, since.month, since.day, tzinfo=UTC)


def _parse_allow_argument(allow: object) -> EgressPolicy:
    entries = [allow] if isinstance(allow, str) else allow
    if not isinstance(entries, Iterable):
        raise InputError(ALLOW_WORDS)
    texts = list(entries)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(ALLOW_WORDS)
    try:
        return EgressPolicy().with_allowed(*texts)
    except ConfigurationError as error:
        raise InputError(f"allow: {error.message}") from error
