"""The list of sites: which are watched, which need attention; actions on one or many of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity, Identity, require_owner
from siteatlas.access.limits import (
    AS_FILE,
    FILTERED,
    READ,
    SCAN,
    AccessLimits,
    CurrentLimits,
    QueueTurn,
)
from siteatlas.catalog.domains import (
    DOMAIN_SORTS,
    DomainState,
    change_domain,
    find_domain,
    list_domains,
    lock_domain,
    most_used_tags,
)
from siteatlas.catalog.findings import FindingTotal
from siteatlas.catalog.paging import Page
from siteatlas.catalog.scans import ScanPoint, recent_scans
from siteatlas.errors import AddressError, InputError
from siteatlas.net.address import parse_site
from siteatlas.queue.fence import SubmittedJob
from siteatlas.queue.operator_actions import remove_domain_and_jobs
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import ScanState
from siteatlas.storage.session import AsyncSession, get_session, retry_when_busy
from siteatlas.text import MAX_TAG_CHARS, merged_tags
from siteatlas.web.charts import ScanMark
from siteatlas.web.context import (
    Context,
    ReadSession,
    Services,
    apply_to_each,
    csv_file,
    read_form,
)
from siteatlas.web.templating import (
    address,
    ask,
    duration,
    exact,
    next_href,
    redirect,
    render,
    sort_links,
)

router = APIRouter(include_in_schema=False)


@router.get("/search", dependencies=[READ])
async def search(
    _request: Request, session: ReadSession, q: Annotated[str, Query(max_length=2048)] = ""
) -> Response:
    """A number is a job; an address whose site is known leads there.

    Anything else is a part of the host of a site or, if there is none, a part of a URL.
    """
    text = q.strip()
    if text.isdecimal():
        return redirect(f"/jobs/{text}")
    with suppress(AddressError):
        site = parse_site(text)
        if await find_domain(session, site.domain) is not None:
            inside = {} if site.is_site_root else {"tab": "urls", "contains": site.path}
            return redirect(address(f"/domains/{site.domain}", inside))
    if not text or (await list_domains(session, contains=text, limit=1)).items:
        return redirect(address("/domains", q=text))
    return redirect(address("/urls", contains=text))


@router.get("/findings", dependencies=[READ, AS_FILE], response_class=HTMLResponse)
async def show_findings(request: Request, context: Context) -> Response:
    """What is wrong in all sites, by rule, the worst first."""
    totals = await context.finding_totals.run()

    async def read(_session: AsyncSession, **_page: object) -> Page[FindingTotal]:
        return Page(totals, None)

    if request.state.is_file:
        return csv_file("findings", FINDING_FIELDS, read)
    return render(request, "findings.html", totals=totals)


@router.get("/problems", dependencies=[READ])
async def show_problems() -> Response:
    """The former address of the findings."""
    return redirect("/findings")


ROWS = 100
# What the files of these lists have.
FIELDS = (
    "domain watched paused last_scan_status last_error_code last_scan_at url_count sitemap_count "
    "change_count finding_count missing_count tags next_scan_at scan_interval_hours created_at"
)
FINDING_FIELDS = "code severity title count documents domains new accepted example since"
FILTERS = {
    "": "All",
    DomainState.ATTENTION.value: "Needs attention",
    DomainState.WATCHED.value: "Watched",
    DomainState.PAUSED.value: "Paused",
    DomainState.FAILING.value: "Failing",
}
# The columns that sort, each with the order that it begins with.
COLUMNS = ("name", "-scanned", "-urls", "-changes", "-findings")
SCAN_NOW, TAG, UNTAG, REMOVE = "scan", "tag", "untag", "remove"
# What can be done with selected sites, and what is said of those with which it was done.
ACTIONS = {
    SCAN_NOW: "queued for a scan",
    "pause": "paused",
    "resume": "resumed",
    TAG: "tagged",
    UNTAG: "untagged",
    REMOVE: "removed",
}


@router.get("/domains", dependencies=[READ, AS_FILE, FILTERED], response_class=HTMLResponse)
async def show_domains(
    request: Request,
    session: ReadSession,
    *,
    state: str = "",
    q: Annotated[str, Query(max_length=255)] = "",
    tag: Annotated[str, Query(max_length=MAX_TAG_CHARS)] = "",
    sort: Annotated[str, Query(pattern=DOMAIN_SORTS)] = "name",
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
    done: str = "",
    changed: Annotated[int | None, Query(ge=0)] = None,
    left: Annotated[int, Query(ge=0)] = 0,
    joined: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """One page of sites with the strip of their last scans.

    After an action on many sites, it says with how many it was done and how many were left; of a
    scan, also how many had one already.
    """
    wanted = DomainState(state) if state in set(DomainState) else None
    kept = {"state": wanted.value if wanted else "", "q": q.strip(), "tag": tag.strip().lower()}
    contains, with_tag = kept["q"] or None, kept["tag"] or None
    read = partial(list_domains, state=wanted, contains=contains, tag=with_tag, sort=sort)
    if request.state.is_file:
        return csv_file("sites", FIELDS, read)
    page = await read(session, limit=ROWS, cursor=cursor)
    history = await recent_scans(session, [site.id for site in page.items])
    tags = await most_used_tags(session)
    return render(
        request,
        "domains.html",
        sites=page.items,
        strips={key: [scan_mark(point) for point in points] for key, points in history.items()},
        published={
            key: [point for point in points if point.state is ScanState.PUBLISHED]
            for key, points in history.items()
        },
        filters=FILTERS,
        tags={**({kept["tag"]: None} if kept["tag"] else {}), **tags},
        kept=kept | {"sort": sort},
        is_filtered=any(kept.values()),
        heads=sort_links("/domains", kept, sort, COLUMNS),
        shows_reason=wanted in {DomainState.ATTENTION, DomainState.FAILING},
        changed=changed,
        left=left,
        joined=joined,
        jobs_href="/jobs" if done == SCAN_NOW else None,
        done=ACTIONS.get(done, "changed"),
        next_href=next_href("/domains", page.next_cursor, kept | {"sort": sort}),
    )


def scan_mark(point: ScanPoint) -> ScanMark:
    """A scan as a bar of the strip."""
    result = "fail"
    if point.state is ScanState.PUBLISHED:
        result = "part" if point.partial else "ok"
    elif point.state is ScanState.CANCELLED:
        result = "none"
    word = {"ok": "completed", "part": "partial", "fail": "failed", "none": "cancelled"}[result]
    title = (
        f"{exact(point.started_at)}: {word}, {duration(point.seconds)}, {point.url_count:,} URLs"
    )
    return ScanMark(result, point.seconds, title)


@router.post("/domains", dependencies=[SCAN])
async def act_on_domains(
    request: Request, context: Context, identity: CurrentIdentity, limits: CurrentLimits
) -> Response:
    """Do the same with the selected sites; those with which it cannot be done are left alone.

    A removal is confirmed, by the script or on a page that names the sites.
    """
    form = await read_form(request)
    names, action = form.many("domain")[:1_000], form.value("action")
    if not names:
        raise InputError("Select at least one site first.")
    if action not in ACTIONS:
        raise InputError("Choose what to do with the selected sites.")
    tags, sites = form.tags(), {parse_site(name).domain for name in names}
    if action in {TAG, UNTAG} and not tags:
        raise InputError("Enter the tags first.")
    kept = {name: form.value(name) for name in ("state", "q", "tag", "sort") if form.value(name)}
    if action == REMOVE and not form.is_checked("confirmed"):
        return _ask_to_remove(request, sorted(sites), kept)
    if action == SCAN_NOW:
        async with limits.queue_room.turn(identity) as turn:
            await turn.require(len(sites))

    joined = set[str]()

    async def act(site: str) -> None:
        if action == SCAN_NOW:
            if (await scan_again(site, context, identity, limits)).deduplicated:
                joined.add(site)
        else:
            await change_site(site, action, identity, tags)

    try:
        changed = await apply_to_each(sorted(sites), act)
    finally:
        context.wake_consumer()
        context.notify_scheduler()
    counts = {"done": action, "changed": changed - len(joined), "left": len(sites) - changed}
    counts |= {"joined": len(joined)} if joined else {}
    return redirect(f"/domains?{urlencode(kept | counts)}")


def _ask_to_remove(request: Request, sites: list[str], kept: dict[str, str]) -> HTMLResponse:
    fields = [*kept.items(), *(("domain", site) for site in sites), ("action", REMOVE)]
    one = len(sites) == 1
    return ask(
        request,
        "Remove 1 site" if one else f"Remove {len(sites)} sites",
        f"This deletes everything stored about {'this site' if one else 'these sites'}: the URLs, "
        "the history and the changes.",
        address("/domains", kept) if kept else f"/domains/{sites[0]}?tab=settings",
        fields=fields,
        sites=sites,
    )


@retry_when_busy
async def change_site(name: str, action: str, identity: Identity, tags: Sequence[str] = ()) -> None:
    """Remove, tag, untag, pause or resume a site."""
    async with get_session() as session, session.begin():
        if action == REMOVE:
            await remove_domain_and_jobs(session, name, identity.limited_to_user)
            return
        found = await lock_domain(session, name, partial(require_owner, identity))
        if action == TAG:
            await change_domain(session, found, tags=merged_tags(found.tags, tags))
        elif action == UNTAG:
            await change_domain(session, found, tags=sorted({*found.tags} - {*tags}))
        else:
            await change_domain(session, found, paused=action == "pause")


async def scan_again(
    name: str, context: Services, identity: Identity, limits: AccessLimits
) -> SubmittedJob:
    """Queue a scan of a site that is known, or join the one that it has."""
    async with limits.queue_room.turn(identity) as turn:
        return await _scan(name, context, identity, turn)


@retry_when_busy
async def _scan(name: str, context: Services, identity: Identity, turn: QueueTurn) -> SubmittedJob:
    async with get_session() as session, session.begin():
        await turn.reserve(session)
        found = await lock_domain(session, name)
        return await submit_site(
            session,
            parse_site(found.base_url),
            created_by=identity.user_id,
            max_pages=found.max_pages,
            interval_hours=context.settings.scan_interval_hours,
            max_attempts=context.settings.max_attempts,
        )
