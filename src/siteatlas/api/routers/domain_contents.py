"""What is stored about a site: documents, URLs, problems, candidates, scans and robots.txt."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query

from siteatlas.access.identity import CurrentIdentity, Identity, require_owner
from siteatlas.access.limits import EXPENSIVE, FILTERED, READ, SCAN
from siteatlas.api.context import ReadSession, WriteSession
from siteatlas.api.limits import ParsedBodyRoute
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX, DomainName
from siteatlas.api.schemas.base import QueryShape
from siteatlas.api.schemas.changes import CompareQuery
from siteatlas.api.schemas.domains import (
    AcceptAnswer,
    AcceptRequest,
    CandidatesQuery,
    FindingsQuery,
    PolicyQuery,
    ProblemsQuery,
    SectionsQuery,
)
from siteatlas.api.schemas.urls import (
    AllUrlsQuery,
    DomainUrlsQuery,
    SitemapsQuery,
    UrlHistoryQuery,
    UrlsQuery,
)
from siteatlas.catalog.comparison import ComparisonView, compare_scans
from siteatlas.catalog.domains import (
    CandidateView,
    find_domain_view,
    list_candidates,
    lock_domain,
)
from siteatlas.catalog.findings import FindingView, accept_findings, list_findings
from siteatlas.catalog.paging import Page
from siteatlas.catalog.problems import ProblemFilter, ProblemView, list_problems
from siteatlas.catalog.robots import PolicyView, RobotsFileView, find_policy, list_robots_files
from siteatlas.catalog.scans import ScanView, list_scans
from siteatlas.catalog.sections import SectionsView, domain_sections
from siteatlas.catalog.sitemaps import SitemapView, find_sitemap, list_sitemaps
from siteatlas.catalog.url_lists import (
    UrlHistoryView,
    UrlPage,
    list_domain_urls,
    list_sitemap_urls,
    list_url_history,
    search_urls,
)
from siteatlas.queue.fence import parse_status
from siteatlas.storage.session import AsyncSession

sitemaps_router = APIRouter(prefix="/api/v3/sitemaps", tags=["sitemaps"])


@sitemaps_router.get(
    "/{sitemap_id}",
    dependencies=[READ],
    summary="Show a sitemap",
    responses=problems(404),
)
async def get_sitemap(sitemap_id: UUID, session: ReadSession) -> SitemapView:
    """What is stored about one sitemap."""
    return await find_sitemap(session, sitemap_id)


@sitemaps_router.get(
    "/{sitemap_id}/urls",
    dependencies=[READ, FILTERED],
    summary="List the URLs of a sitemap",
    responses=problems(404),
)
async def get_sitemap_urls(
    sitemap_id: UUID, query: Annotated[UrlsQuery, Query()], session: ReadSession
) -> UrlPage:
    """The stored URLs of one sitemap."""
    sitemap = await find_sitemap(session, sitemap_id)
    return await list_sitemap_urls(session, sitemap.id, query.wanted, **query.page)


router = APIRouter(prefix=PREFIX, tags=["domains"], route_class=ParsedBodyRoute)


@router.get(
    "/{domain}/sitemaps",
    dependencies=[READ],
    summary="List the sitemaps of a site",
    responses=problems(404),
)
async def get_domain_sitemaps(
    domain: DomainName, query: Annotated[SitemapsQuery, Query()], session: ReadSession
) -> Page[SitemapView]:
    """The stored sitemaps of a site, by id."""
    wanted = parse_status(query.status).value if query.status else None
    site = await find_domain_view(session, domain)
    return await list_sitemaps(
        session,
        site.id,
        type=query.type,
        status=wanted,
        **query.page,
    )


@router.get(
    "/{domain}/urls",
    dependencies=[READ, FILTERED],
    summary="List the URLs of a site",
    responses=problems(404, 410),
)
async def get_domain_urls(
    domain: DomainName, query: Annotated[DomainUrlsQuery, Query()], session: ReadSession
) -> UrlPage:
    """The stored URLs of a site, sitemap by sitemap or sorted, now or as they were."""
    site = await find_domain_view(session, domain)
    return await list_domain_urls(
        session,
        site.id,
        query.wanted,
        at=query.moment,
        sort=query.sort,
        **query.page,
    )


@router.get(
    "/{domain}/urls/history",
    summary="Show the history of a URL",
    responses=problems(404),
    dependencies=[READ],
)
async def get_url_history(
    domain: DomainName, query: Annotated[UrlHistoryQuery, Query()], session: ReadSession
) -> UrlHistoryView:
    """Where a URL is or was listed, and every retained change of it, newest first."""
    site = await find_domain_view(session, domain)
    return await list_url_history(session, site.id, query.url, **query.page)


@router.get(
    "/{domain}/sections",
    dependencies=[READ],
    summary="Count the URLs of a site by section and month",
    responses=problems(404),
)
async def get_domain_sections(
    domain: DomainName, query: Annotated[SectionsQuery, Query()], session: ReadSession
) -> SectionsView:
    """The largest sections of a site, and its URLs by the month of their `lastmod`."""
    site = await find_domain_view(session, domain)
    return await domain_sections(session, site.id, limit=query.limit)


@router.get(
    "/{domain}/problems",
    dependencies=[READ],
    summary="List the problems in a site's sitemaps",
    responses=problems(404),
)
async def get_domain_problems(
    domain: DomainName, query: Annotated[ProblemsQuery, Query()], session: ReadSession
) -> Page[ProblemView]:
    """The problems in the sitemaps of a site, by code, with samples."""
    wanted = ProblemFilter(query.code, query.sitemap, query.state)
    site = await find_domain_view(session, domain)
    return await list_problems(session, site.id, wanted, **query.page)


@router.get(
    "/{domain}/findings",
    dependencies=[READ],
    summary="List what is wrong with a site",
    responses=problems(404),
)
async def get_domain_findings(
    domain: DomainName, query: Annotated[FindingsQuery, Query()], session: ReadSession
) -> Page[FindingView]:
    """The findings of a site, the worst first, with the reason for each rule and how to fix it."""
    site = await find_domain_view(session, domain)
    return await list_findings(session, site.id, query.wanted, **query.page)


RuleCode = Annotated[
    str,
    Path(
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9_-]+$",
        description="The code of a rule, or of a problem.",
        examples=["lastmod-uniform"],
    ),
]


@router.post(
    "/{domain}/findings/{code}/accept",
    dependencies=[SCAN],
    summary="Accept the findings of a rule",
    responses=problems(404),
)
async def accept_domain_findings(
    domain: DomainName,
    code: RuleCode,
    body: AcceptRequest,
    identity: CurrentIdentity,
    session: WriteSession,
) -> AcceptAnswer:
    """Leave the findings of a rule as they are, with a reason.

    They are new again when they return after they were resolved, or have become ten times as many.
    """
    async with session.begin():
        return await _accept(domain, code, identity, session, body.reason, body.sitemap)


@router.delete(
    "/{domain}/findings/{code}/accept",
    dependencies=[SCAN],
    summary="No longer accept the findings of a rule",
    responses=problems(404),
)
async def reopen_domain_findings(
    domain: DomainName, code: RuleCode, identity: CurrentIdentity, session: WriteSession
) -> AcceptAnswer:
    """Show the findings of a rule among those to mend again."""
    async with session.begin():
        return await _accept(domain, code, identity, session, None, None)


async def _accept(
    domain: str,
    code: str,
    identity: Identity,
    session: AsyncSession,
    reason: str | None,
    sitemap: str | None,
) -> AcceptAnswer:
    site = await lock_domain(session, domain, partial(require_owner, identity))
    count = await accept_findings(
        session, site.id, code, user_id=identity.user_id, reason=reason, sitemap=sitemap
    )
    return AcceptAnswer(count=count)


@router.get(
    "/{domain}/candidates",
    dependencies=[READ],
    summary="List the sitemap candidates of a site",
    responses=problems(404),
)
async def get_domain_candidates(
    domain: DomainName, query: Annotated[CandidatesQuery, Query()], session: ReadSession
) -> Page[CandidateView]:
    """Every address where Siteatlas looked for a sitemap of the site, with the verdict."""
    site = await find_domain_view(session, domain)
    return await list_candidates(session, site.id, verdict=query.verdict, **query.page)


@router.get(
    "/{domain}/scans",
    dependencies=[READ],
    summary="List the scans of a site",
    responses=problems(404),
)
async def get_domain_scans(
    domain: DomainName, query: Annotated[QueryShape, Query()], session: ReadSession
) -> Page[ScanView]:
    """The scans of a site, newest first."""
    site = await find_domain_view(session, domain)
    return await list_scans(session, site.id, **query.page)


@router.get(
    "/{domain}/compare",
    dependencies=[READ, EXPENSIVE],
    summary="Compare two scans of a site",
    responses=problems(404, 410),
)
async def get_scan_comparison(
    domain: DomainName, query: Annotated[CompareQuery, Query()], session: ReadSession
) -> ComparisonView:
    """What differs between the URLs after two scans of a site, sitemap by sitemap."""
    site = await find_domain_view(session, domain)
    return await compare_scans(
        session,
        site.id,
        (query.from_scan, query.to_scan),
        **query.page,
    )


@router.get(
    "/{domain}/robots",
    dependencies=[READ],
    summary="List the versions of a site's robots.txt",
    responses=problems(404),
)
async def get_domain_robots(
    domain: DomainName, query: Annotated[QueryShape, Query()], session: ReadSession
) -> Page[RobotsFileView]:
    """Every version of the site's robots.txt that a scan has read, newest first."""
    site = await find_domain_view(session, domain)
    return await list_robots_files(session, site.id, **query.page)


@router.get(
    "/{domain}/policy",
    dependencies=[READ],
    summary="Show who may fetch what of a site",
    responses=problems(404),
)
async def get_domain_policy(
    domain: DomainName, query: Annotated[PolicyQuery, Query()], session: ReadSession
) -> PolicyView:
    """What the site's robots.txt, as last read, lets agents fetch, and which lines decide."""
    site = await find_domain_view(session, domain)
    return await find_policy(session, site, agent=query.agent, path=query.path)


urls_router = APIRouter(prefix="/api/v3/urls", tags=["urls"])


@urls_router.get(
    "",
    summary="Search the URLs of all sites",
    responses=problems(),
    dependencies=[READ, EXPENSIVE],
)
async def get_urls(query: Annotated[AllUrlsQuery, Query()], session: ReadSession) -> UrlPage:
    """The stored URLs of all sites, sitemap by sitemap."""
    return await search_urls(session, query.wanted, tag=query.wanted_tag, **query.page)
