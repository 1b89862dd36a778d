"""Judges a site by what is stored of it after a scan: its sitemaps, robots.txt, earlier scans.

Only who has watched a site for some time can say most of this. The rows are read by
`siteatlas.catalog.site_history`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from siteatlas.errors import AddressError
from siteatlas.findings.judging import Finding, Notes, Sample, share
from siteatlas.findings.policies import AccessChange, Policy, Purpose, known_agents
from siteatlas.findings.rules import all_rules, rule_of
from siteatlas.findings.site import SEARCH_ENGINES, judge_robots_text
from siteatlas.net.address import parse_url
from siteatlas.scanner.discovery.robots import parse_robots
from siteatlas.scanner.events import DiscoveryMethod, DocumentOutcome, SitemapType

# How long what happened once counts as the state of a site.
REMEMBERED = timedelta(days=30)
# Fewer children, or pages, may be so by chance.
MIN_CHILDREN = 5
MIN_PAGES = 5
# What robots.txt is needed for, or what it was before.
ROBOTS_RULES = frozenset(code for code, rule in all_rules().items() if "robots" in rule.needs)
BLOCKED = {
    Purpose.AI_SEARCH: "ai-search-blocked",
    Purpose.USER_ACTION: "ai-user-blocked",
    Purpose.ARCHIVE: "archive-blocked",
}


class StoredSitemap(NamedTuple):
    """A sitemap after a scan; `state` and what follows are of that scan, if it came to it.

    `lastmod` is what the index says of it.
    """

    id: UUID
    url: str
    requested_url: str | None
    method: str
    type: str | None
    etag: str | None
    lastmod: datetime | None
    is_window: bool
    url_count: int
    vanished_at: datetime | None
    gone_at: datetime | None
    state: str | None = None
    http_status: int | None = None
    error_code: str | None = None


class SitemapChanges(NamedTuple):
    """What a scan changed in a sitemap that was read completely at `not_before`."""

    total: int
    added: int
    backwards: int
    example: str | None
    seldom: int
    not_before: datetime | None


class PastScan(NamedTuple):
    """How many URLs a site had after a published scan."""

    url_count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredSite:
    """What is stored of a site after a scan, which is the first of `scans`.

    `parents` are the indexes that list a sitemap. `resent` are sitemaps that were sent whole in
    several scans in a row although they had not changed. `flapping` are URLs by sitemap.
    """

    now: datetime
    started_at: datetime
    sitemaps: Sequence[StoredSitemap]
    scans: Sequence[PastScan] = ()
    parents: Mapping[UUID, Sequence[UUID]] = field(default_factory=dict)
    changes: Mapping[UUID, SitemapChanges] = field(default_factory=dict)
    resent: frozenset[UUID] = frozenset()
    flapping: Mapping[UUID, Sequence[str]] = field(default_factory=dict)
    removals_held: int = 0
    robots: str | None = None
    robots_origin: str = ""
    robots_failed: bool = False
    robots_truncated: bool = False
    access: Sequence[AccessChange] = ()


Found = tuple[UUID | None, Finding]


def judge_stored(site: StoredSite) -> list[Found]:
    """All findings by the rules for sites; those without a sitemap are of the site as a whole."""
    whole = Notes(f"{site.robots_origin}/robots.txt")
    notes: dict[UUID, Notes] = {one.id: Notes(one.url) for one in site.sitemaps}
    listed = [one for one in site.sitemaps if one.gone_at is None]
    for one in site.sitemaps:
        if one.vanished_at is not None and site.now - one.vanished_at < REMEMBERED:
            notes[one.id].add("sitemap-vanished", detail=f"since {one.vanished_at:%Y-%m-%d}")
    for one in listed:
        _judge_discovery(one, notes[one.id])
        _judge_changes(one, site, notes[one.id])
    _judge_children(site, notes)
    _judge_robots(site, listed, whole, notes)
    _judge_counts(site, whole)
    found: list[Found] = [(None, finding) for finding in whole.findings()]
    for sitemap_id, of_sitemap in notes.items():
        found += [(sitemap_id, finding) for finding in of_sitemap.findings()]
    return found


def _judge_discovery(one: StoredSitemap, notes: Notes) -> None:
    if one.state is None or one.state == DocumentOutcome.UNREAD:
        return
    if one.requested_url not in {None, one.url}:
        notes.add("sitemap-redirected", [Sample(one.requested_url)])
    if one.method == DiscoveryMethod.COMMON_PATH:
        notes.add("sitemap-orphan")
    elif one.method in {DiscoveryMethod.HTML_LINK, DiscoveryMethod.HTTP_HEADER}:
        notes.add("sitemap-not-in-robots")


def _judge_changes(one: StoredSitemap, site: StoredSite, notes: Notes) -> None:
    if one.id in site.resent and one.etag:
        notes.add("sitemap-validators-unstable", [Sample(value=one.etag)])
    for url in site.flapping.get(one.id, ()):
        notes.add("url-flapping", [Sample(url)])
    changes = site.changes.get(one.id)
    if changes is None:
        return
    if changes.backwards:
        notes.add("lastmod-backwards", [Sample(changes.example)], count=changes.backwards)
    if changes.seldom >= MIN_PAGES:
        detail = f"{changes.seldom:,} pages changed that say yearly or never"
        notes.add("changefreq-contradicts-history", detail=detail)
    if one.is_window and changes.added >= max(one.url_count, MIN_PAGES) and changes.not_before:
        hours = (site.now - changes.not_before).total_seconds() / 3600
        notes.add("window-overrun", detail=f"{changes.added:,} new entries in {hours:,.1f} hours")


def _judge_children(site: StoredSite, notes: Mapping[UUID, Notes]) -> None:
    """What a sitemap says of the indexes that list it; they may still list one that is gone."""
    children: dict[UUID, list[StoredSitemap]] = defaultdict(list)
    for one in site.sitemaps:
        failed = one.state == DocumentOutcome.UNREAD and rule_of(one.error_code) is not None
        where = [Sample(one.url)]
        for parent in site.parents.get(one.id, ()):
            if parent not in notes:
                continue
            children[parent].append(one)
            if failed:
                notes[parent].add("index-child-dead", where)
            elif one.type == SitemapType.INDEX:
                notes[parent].add("index-in-index", where)
            changes = site.changes.get(one.id)
            # A date without time lasts until its end.
            read_at = changes.not_before if changes is not None else None
            if read_at and one.lastmod and one.lastmod + timedelta(days=1) <= read_at:
                notes[parent].add("index-lastmod-lags", [Sample(one.url, f"{one.lastmod}")])
        if failed and one.method == DiscoveryMethod.ROBOTS_TXT:
            notes[one.id].add("robots-names-dead-sitemap", where)
    for parent, of_index in children.items():
        same = [one for one in of_index if one.state == DocumentOutcome.UNCHANGED and one.lastmod]
        just_now = site.started_at - timedelta(hours=1)
        fresh = [one for one in same if one.lastmod is not None and one.lastmod >= just_now]
        if len(fresh) >= max(MIN_CHILDREN, 0.9 * len(same)):
            detail = f"{share(len(fresh), len(of_index))} did not change"
            notes[parent].add("index-lastmod-always-now", [Sample(fresh[0].url)], detail=detail)


def _judge_robots(
    site: StoredSite,
    listed: Iterable[StoredSitemap],
    whole: Notes,
    notes: Mapping[UUID, Notes],
) -> None:
    if site.robots_failed:
        whole.add("robots-unreachable")
    for change in site.access:
        names = ", ".join(agent.name for agent in change.agents)
        detail = f"{names}: {', '.join(change.paths[:10])}"
        whole.add(change.code, [Sample(value=path) for path in change.paths], detail=detail)
    if site.robots is None:
        return
    content = site.robots.encode("utf-8", "replace")
    judge_robots_text(content, whole)
    if site.robots_truncated:
        whole.add("robots-too-large")
    rules = [parse_robots(content).rules_for(agent) for agent in SEARCH_ENGINES]
    for one in listed:
        path = _path(one.url, site.robots_origin)
        if path is not None and not all(of_agent.allows(path) for of_agent in rules):
            notes[one.id].add("sitemap-blocked-by-robots")
    policy = Policy(site.robots)
    for agent in known_agents().agents:
        rule = policy.decide(agent, "/")[0] if agent.purpose in BLOCKED else None
        if agent.purpose is not None and rule is not None and not rule.allow:
            whole.add(BLOCKED[agent.purpose], [Sample(value=agent.name, line=rule.line)])
    for usage in policy.usages():
        for sentence in usage.contradicts:
            whole.add("content-signal-contradicts", [Sample(value=usage.text)], detail=sentence)


def _path(url: str, origin: str) -> str | None:
    try:
        address = parse_url(url)
    except AddressError:
        return None
    return url[len(origin) :] or "/" if address.origin == origin else None


def _judge_counts(site: StoredSite, whole: Notes) -> None:
    if site.removals_held:
        whole.add("mass-removal-held", detail=f"{site.removals_held:,} URLs")
    if not site.scans:
        return
    now = site.scans[0].url_count
    for later, earlier in zip(site.scans, site.scans[1:], strict=False):
        if site.now - later.at >= REMEMBERED:
            break
        before = earlier.url_count
        if before >= 20 and later.url_count * 2 < before and now * 2 < before:
            whole.add("count-collapsed", detail=f"{now:,} of {before:,} left")
            break
