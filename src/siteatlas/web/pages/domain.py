"""One site, in tabs: summary, tree, URLs, changes, problems, scans, robots.txt, policy, settings.

Each tab is the same page with another value of `tab`, so that every view has an address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity, Identity, require_owner
from siteatlas.access.limits import AS_FILE, FILTERED, READ, SCAN, CurrentLimits
from siteatlas.catalog.change_feed import URL_KINDS
from siteatlas.catalog.domains import (
    DomainView,
    change_domain,
    find_domain_view,
    find_site_headers,
    list_candidates,
    lock_domain,
    set_site_headers,
)
from siteatlas.catalog.findings import (
    FindingFilter,
    FindingState,
    FindingTotal,
    FindingView,
    accept_findings,
    list_findings,
    total_findings,
)
from siteatlas.catalog.newest_changes import (
    MAX_SORTED,
    changes_by_section,
    count_changes,
    first_changes,
    last_scan_number,
    list_published,
)
from siteatlas.catalog.paging import Page
from siteatlas.catalog.problems import count_repeated_urls
from siteatlas.catalog.robots import access_changes, find_policy, list_robots_files, section_paths
from siteatlas.catalog.scans import (
    ScanPoint,
    find_partial_scan,
    list_scans,
    list_unread_documents,
    recent_scans,
    urls_over_time,
)
from siteatlas.catalog.sections import domain_sections
from siteatlas.catalog.sitemaps import TreeNode, tree_children, tree_roots
from siteatlas.catalog.url_lists import (
    MAX_SORTED_URLS,
    URL_SORTS,
    ListingState,
    UrlFilter,
    list_domain_urls,
)
from siteatlas.errors import InputError, TooManyToSort
from siteatlas.findings.rules import rule_named
from siteatlas.net.address import parse_site
from siteatlas.net.gate import OriginHeaders, read_header_lines
from siteatlas.queue.fence import ACTIVE_STATUSES
from siteatlas.queue.views import list_jobs
from siteatlas.settings import MAX_INTERVAL_HOURS, MAX_PAGES, MIN_INTERVAL_HOURS
from siteatlas.storage.models import LastScanStatus, ScanState
from siteatlas.storage.session import AsyncSession, get_session, retry_when_busy
from siteatlas.web.context import Context, Form, ReadSession, Services, csv_file, read_form
from siteatlas.web.pages.changes import publications
from siteatlas.web.pages.domains import scan_again, scan_mark
from siteatlas.web.pages.url import url_trends
from siteatlas.web.templating import address, explain, next_href, redirect, render, sort_links

ROWS = 50
SUMMARY_DAYS = 90
# Scans with changes on the summary.
LATEST = 3
TABS = {
    "summary": "Summary",
    "tree": "Tree",
    "urls": "URLs",
    "changes": "Changes",
    "findings": "Findings",
    "scans": "Scans",
    "robots": "robots.txt",
    "policy": "Policy",
    "settings": "Settings",
}
router = APIRouter(include_in_schema=False)
DomainName = Annotated[str, Path(max_length=2048)]
Cursor = Annotated[str | None, Query(max_length=2048)]


@router.get(
    "/domains/{domain}", dependencies=[READ, AS_FILE, FILTERED], response_class=HTMLResponse
)
async def show_domain(
    request: Request, session: ReadSession, domain: DomainName, tab: str = "summary"
) -> Response:
    """One tab of a site, or the list that it shows as a file."""
    site = await find_domain_view(session, domain)
    chosen = {"problems": "findings"}.get(tab, tab)
    chosen = chosen if chosen in TABS else "summary"
    if request.state.is_file and chosen in FILES:
        fields, read = FILES[chosen]
        return csv_file(f"{site.domain}-{chosen}", fields, partial(read, domain_id=site.id))
    values = await CONTENTS[chosen](session, site, request)
    return render(request, f"domain_{chosen}.html", site=site, tabs=TABS, tab=chosen, **values)


async def _summary(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    points = await urls_over_time(session, site.id, SUMMARY_DAYS)
    recent = (await recent_scans(session, [site.id]))[site.id]
    candidates = await list_candidates(session, site.id)
    distribution = await domain_sections(session, site.id, limit=8)
    latest = await list_published(session, domain_id=site.id, kinds=URL_KINDS, limit=LATEST)
    # Of a scan with more changes than can be counted, the sections would be wrong.
    newest = next((one for one in latest.items if one.count() <= MAX_SORTED), None)
    jobs = await list_jobs(session, domain=site.domain, limit=1)
    services: Services = request.app.state.web
    return {
        "job": next((job for job in jobs.items if job.status in ACTIVE_STATUSES), None),
        "now": datetime.now(UTC),
        "usual_hours": services.settings.scan_interval_hours,
        "growth": await _growth(session, site, recent),
        "latest": latest.items,
        "first": await first_changes(session, latest.items, room=2_000),
        "newest": newest,
        "changed": await changes_by_section(session, newest.scan_id or 0) if newest else {},
        "distribution": distribution,
        "months": {one.month: one.url_count for one in distribution.months},
        "today": datetime.now(UTC).date(),
        "points": points,
        "strip": [scan_mark(point) for point in recent],
        "candidates": candidates.items,
        "repeated": await count_repeated_urls(session, site.id),
        "days": SUMMARY_DAYS,
        **await _trouble(session, site),
    }


async def _growth(
    session: AsyncSession, site: DomainView, recent: Sequence[ScanPoint]
) -> dict[str, int] | None:
    """By how many URLs and sitemaps the last published scan changed the site; None for a first."""
    counts = [scan.url_count for scan in recent if scan.state is ScanState.PUBLISHED]
    if len(counts) < 2:
        return None
    kinds = await count_changes(session, await last_scan_number(session, site.id), site.id)
    sitemaps = kinds.get("sitemap_added", 0) - kinds.get("sitemap_gone", 0)
    return {"urls": counts[-1] - counts[-2], "sitemaps": sitemaps}


async def _trouble(session: AsyncSession, site: DomainView) -> dict[str, Any]:
    """Why the last scan failed or is partial: the documents, then the reasons that name none."""
    failed = site.last_scan_status is LastScanStatus.FAILED
    partial = None
    if site.last_scan_status is LastScanStatus.PARTIAL:
        partial = await find_partial_scan(session, site.id)
    unread = await list_unread_documents(session, partial.id) if partial else []
    others = {*(partial.reasons if partial else ())} - {one.error_code for one in unread}
    return {
        "explanation": explain(site.last_error_code) if failed else None,
        "unread": unread,
        "reasons": [explain(code) for code in sorted(others)],
    }


async def _tree(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    roots = await tree_roots(session, site.id, cursor=request.query_params.get("cursor"))
    opened: dict[UUID, Page[TreeNode]] = {}
    nodes = list(roots.items)
    while nodes and len(opened) < 5:
        node = nodes.pop(0)
        if node.child_count and node.id not in opened:
            opened[node.id] = await tree_children(session, node.id)
            nodes += opened[node.id].items
    shown = [roots, *opened.values()]
    return {"roots": roots, "opened": opened, "trends": await url_trends(session, shown)}


async def _urls(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    asked = request.query_params
    contains, state = asked.get("contains", "").strip(), asked.get("state", "listed")
    wanted = ListingState(state) if state in set(ListingState) else ListingState.LISTED
    sort = order = asked["sort"] if re.fullmatch(URL_SORTS, asked.get("sort", "")) else ""
    shown = (site.id, UrlFilter(contains or None, wanted))
    read = partial(list_domain_urls, session, *shown, limit=ROWS, cursor=asked.get("cursor"))
    try:
        page = await read(sort=sort or None)
    except TooManyToSort:
        page, order = await read(), ""
    kept = {"tab": "urls", "contains": contains, "state": wanted.value}
    return {
        "page": page,
        "sort": sort,
        "order": order,
        "max_sorted": MAX_SORTED_URLS,
        "heads": sort_links(f"/domains/{site.domain}", kept, order, ("url", "-lastmod")),
        "contains": contains,
        "state": wanted.value,
        "states": list(ListingState),
        "next_href": _next_href(site, kept | {"sort": sort}, page.next_cursor),
    }


async def _changes(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    base = f"/domains/{site.domain}"
    return await publications(session, request, base, {"tab": "changes"}, site.id, site.domain)


async def _findings(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    """What is wrong by rule; what a chosen rule found by document."""
    asked = request.query_params
    totals = await total_findings(session, site.id)
    rule = rule_named(asked.get("code", ""))
    chosen = next((one for one in totals if rule and one.code == rule.code), None)
    values = {"totals": totals, "chosen": chosen, **await _trouble(session, site)}
    if chosen is None:
        return values
    wanted = FindingFilter(chosen.code, state=FindingState.ALL)
    kept = {"tab": "findings", "code": chosen.code}
    page = await list_findings(session, site.id, wanted, limit=ROWS, cursor=asked.get("cursor"))
    ticket = _ticket(site, chosen, page.items)
    return values | {
        "page": page,
        "ticket": ticket,
        "next_href": _next_href(site, kept, page.next_cursor),
    }


def _ticket(site: DomainView, chosen: FindingTotal, findings: Sequence[FindingView]) -> str:
    """What a rule found, in Markdown, for those who mend it."""
    rule = chosen.rule
    where = f"{chosen.count:,} in {chosen.documents:,} documents"
    lines = [
        f"## {site.domain}: {rule.title}",
        "",
        f"{rule.severity.word.capitalize()} `{rule.code}`, since {chosen.since:%Y-%m-%d}: {where}.",
        "",
        f"**Why it matters:** {rule.why}",
        "",
        f"**How to fix it:** {rule.fix}",
        "",
    ]
    for one in [one for one in findings if one.resolved_at is None][:5]:
        lines.append(f"- {one.sitemap or 'The site as a whole'}: {one.count:,}. {one.detail}")
        lines += [f"  - `{sample.url or sample.value}`" for sample in one.samples]
    return "\n".join(lines)


async def _scans(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    page = await list_scans(session, site.id, limit=ROWS, cursor=request.query_params.get("cursor"))
    return {"page": page, "next_href": _next_href(site, {"tab": "scans"}, page.next_cursor)}


async def _robots(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    page = await list_robots_files(
        session, site.id, limit=20, cursor=request.query_params.get("cursor")
    )
    sections = await section_paths(session, site.id)
    return {
        "page": page,
        # Long files take longer than other requests can wait.
        "access": await asyncio.to_thread(access_changes, page.items, sections),
        "next_href": _next_href(site, {"tab": "robots"}, page.next_cursor),
    }


async def _policy(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    asked = request.query_params
    agent, path = asked.get("agent", "").strip(), asked.get("path", "").strip()
    policy = await find_policy(session, site, agent=agent or None, path=path or None)
    decisions = [one for shown in policy.agents for one in shown.decisions]
    lines = dict(sorted((one.line, one.rule) for one in decisions if one.line))
    return {"policy": policy, "agent": agent, "path": path, "lines": lines}


async def _settings(session: AsyncSession, site: DomainView, request: Request) -> dict[str, Any]:
    headers = await find_site_headers(session, site.id)
    return {"saved": "saved" in request.query_params, "fault": "", "headers": headers}


# The lists of a site that can be asked for as files, and what these have.
FILES: dict[str, tuple[str, Callable[..., Awaitable[Page[Any]]]]] = {
    "findings": (
        "code severity title state sitemap count detail first_seen_at last_seen_at",
        list_findings,
    ),
    "scans": (
        "id state partial reasons error_code started_at finished_at sitemap_count url_count",
        list_scans,
    ),
}
CONTENTS: dict[str, Callable[[AsyncSession, DomainView, Request], Awaitable[dict[str, Any]]]] = {
    "summary": _summary,
    "tree": _tree,
    "urls": _urls,
    "changes": _changes,
    "findings": _findings,
    "scans": _scans,
    "robots": _robots,
    "policy": _policy,
    "settings": _settings,
}


def _next_href(site: DomainView, kept: dict[str, str], cursor: str | None) -> str | None:
    return next_href(f"/domains/{site.domain}", cursor, kept)


@router.post("/domains/{domain}/scan", dependencies=[SCAN])
async def scan_domain_now(
    context: Context, identity: CurrentIdentity, limits: CurrentLimits, domain: DomainName
) -> Response:
    """Queue a scan of a site that is known, and show its job."""
    job = await scan_again(parse_site(domain).domain, context, identity, limits)
    context.wake_consumer()
    return redirect(f"/jobs/{job.id}")


@router.post("/domains/{domain}/findings", dependencies=[SCAN])
async def accept_domain_findings(
    request: Request, identity: CurrentIdentity, domain: DomainName
) -> Response:
    """Accept what a rule found, for a reason, or take that back."""
    name, form = parse_site(domain).domain, await read_form(request)
    code, reason = form.value("code"), form.value("reason").strip()
    reopened = form.is_checked("reopen")
    if not reopened and not reason:
        raise InputError("Say why the findings are accepted.")
    async with get_session() as session, session.begin():
        found = await lock_domain(session, name, partial(require_owner, identity))
        await accept_findings(
            session,
            found.id,
            code,
            user_id=identity.user_id,
            reason=None if reopened else reason,
        )
    return redirect(address(f"/domains/{name}", {"tab": "findings", "code": code}))


@router.post("/domains/{domain}/settings", dependencies=[SCAN])
async def save_domain_settings(
    request: Request, context: Context, identity: CurrentIdentity, domain: DomainName
) -> Response:
    """Watch, pause, interval and limit of a site; an empty field stands for the default."""
    name = parse_site(domain).domain
    changes = _changed_settings(await read_form(request))
    changes["default_interval_hours"] = context.settings.scan_interval_hours
    await _change(name, changes, identity)
    context.notify_scheduler()
    return redirect(f"/domains/{name}?tab=settings&saved=1")


def _changed_settings(form: Form) -> dict[str, Any]:
    return {
        "watched": form.is_checked("watched"),
        "paused": form.is_checked("paused"),
        "scan_interval_hours": form.number(
            "interval", "The interval", least=MIN_INTERVAL_HOURS, most=MAX_INTERVAL_HOURS
        ),
        "max_pages": form.whole_number("max_urls", "The maximum number of URLs", most=MAX_PAGES),
        "tags": form.tags(),
    }


@retry_when_busy
async def _change(name: str, changes: dict[str, Any], identity: Identity) -> None:
    async with get_session() as session, session.begin():
        found = await lock_domain(session, name, partial(require_owner, identity))
        await change_domain(session, found, **changes)


@router.post("/domains/{domain}/headers", dependencies=[SCAN])
async def save_site_headers(
    request: Request, identity: CurrentIdentity, domain: DomainName
) -> Response:
    """Replace the request headers of a site, or remove them with an empty field."""
    name, form = parse_site(domain).domain, await read_form(request)
    headers = read_header_lines(form.value("headers").splitlines())
    async with get_session() as session, session.begin():
        found = await lock_domain(session, name, partial(require_owner, identity))
        given = OriginHeaders(form.value("origin"), headers)
        await set_site_headers(session, found, given, identity.user_id)
    return redirect(f"/domains/{name}?tab=settings&saved=1")
