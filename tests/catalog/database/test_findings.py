"""The life of a finding: read, announced, accepted, resolved, back again."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.findings import (
    FindingFilter,
    FindingState,
    FindingTotals,
    accept_findings,
    list_findings,
    record_site_findings,
    resolve_findings_of,
    total_findings,
)
from siteatlas.errors import FindingNotFound
from siteatlas.findings.rules import Severity
from siteatlas.scanner.events import DocumentOutcome
from siteatlas.storage.models import LOCAL_USER_ID, Domain, FeedEvent, Scan, Sitemap
from tests.fixtures.changes import add_published_scan
from tests.fixtures.findings import announce, found, judge, words
from tests.fixtures.records import add_domain, add_sitemap


class Life:
    """A site with one sitemap, and what the feed says of it, scan by scan."""

    def __init__(self, session: AsyncSession, domain: Domain, sitemap: Sitemap) -> None:
        self.session = session
        self.domain = domain
        self.sitemap = sitemap
        self.scan: Scan | None = None

    async def reads(self, *findings, outcome=DocumentOutcome.COMPLETE, published=True):
        """Read the sitemap in a new scan; give the events of its publication."""
        self.scan = await add_published_scan(self.session, self.domain)
        await judge(self.session, self.scan, self.sitemap.id, *findings, outcome=outcome)
        return await self.publish() if published else []

    async def publish(self):
        assert self.scan is not None
        await announce(self.session, self.scan)
        return await self.events()

    async def events(self):
        assert self.scan is not None
        rows = await self.session.scalars(
            select(FeedEvent).where(FeedEvent.scan_id == self.scan.id).order_by(FeedEvent.id)
        )
        return words({"kind": r.kind, "sitemap": r.sitemap, "data": r.data} for r in rows)

    async def accept(self, reason: str | None = "ours"):
        return await accept_findings(
            self.session,
            self.domain.id,
            "lastmod-invalid",
            user_id=LOCAL_USER_ID,
            reason=reason,
        )

    async def states(self, state: FindingState = FindingState.ALL):
        page = await list_findings(self.session, self.domain.id, FindingFilter(state=state))
        return [(one.code, one.state) for one in page.items]


@pytest.fixture
async def life(session: AsyncSession) -> Life:
    domain = await add_domain(session, baseline_scan_id=1)
    return Life(session, domain, await add_sitemap(session, domain, "a.xml"))


async def test_a_finding_is_told_once_and_its_end_once(life: Life):
    assert await life.reads(found("lastmod-invalid", 3)) == ["+lastmod-invalid /a.xml"]
    assert await life.states() == [("lastmod-invalid", "new")]
    assert await life.reads(found("lastmod-invalid", 4)) == []
    assert await life.states() == [("lastmod-invalid", "open")]
    assert await life.reads() == ["-lastmod-invalid /a.xml"]
    assert await life.states() == [("lastmod-invalid", "resolved")]
    assert await life.reads(found("lastmod-invalid", 1)) == ["+lastmod-invalid /a.xml"]


@pytest.mark.parametrize("outcome", [DocumentOutcome.CUT, DocumentOutcome.UNREAD])
async def test_what_is_not_read_to_its_end_resolves_nothing(life: Life, outcome: DocumentOutcome):
    await life.reads(found("lastmod-invalid"))
    assert await life.reads(outcome=outcome) == []


async def test_an_unchanged_document_resolves_only_that_it_could_not_be_fetched(life: Life):
    await life.reads(found("lastmod-invalid"))
    unread = await life.reads(found("sitemap-http-error"), outcome=DocumentOutcome.UNREAD)
    assert unread == ["+sitemap-http-error /a.xml"]
    assert await life.reads(outcome=DocumentOutcome.UNCHANGED) == ["-sitemap-http-error /a.xml"]


async def test_what_an_unpublished_scan_found_is_told_by_the_next_one(life: Life):
    await life.reads(found("lastmod-invalid"), published=False)
    assert await life.reads(found("lastmod-invalid")) == ["+lastmod-invalid /a.xml"]
    await life.reads(published=False)
    assert await life.reads(found("lastmod-invalid")) == []


async def test_an_accepted_finding_is_told_again_when_it_returns(life: Life):
    await life.reads(found("lastmod-invalid", 3))
    assert await life.accept() == 1
    assert await life.states(FindingState.CURRENT) == []
    assert await life.reads(found("lastmod-invalid", 29)) == []
    assert await life.states() == [("lastmod-invalid", "accepted")]
    assert await life.reads() == ["-lastmod-invalid /a.xml"]
    assert await life.reads(found("lastmod-invalid", 3)) == ["+lastmod-invalid /a.xml"]
    assert await life.states() == [("lastmod-invalid", "new")]


async def test_an_accepted_finding_is_told_again_when_it_has_grown_tenfold(life: Life):
    await life.reads(found("lastmod-invalid", 3))
    await life.accept()
    assert await life.reads(found("lastmod-invalid", 30)) == ["+lastmod-invalid /a.xml"]
    assert await life.states(FindingState.CURRENT) == [("lastmod-invalid", "open")]


async def test_an_acceptance_can_be_taken_back(life: Life):
    await life.reads(found("lastmod-invalid"))
    await life.accept()
    assert await life.accept(None) == 1
    assert await life.states() == [("lastmod-invalid", "new")]
    await life.reads()
    with pytest.raises(FindingNotFound):
        await life.accept()


async def test_the_first_judgement_by_new_rules_is_silent(life: Life):
    await life.session.execute(
        update(Sitemap).where(Sitemap.id == life.sitemap.id).values(rules_version=0)
    )
    assert await life.reads(found("lastmod-invalid")) == []
    assert await life.states() == [("lastmod-invalid", "new")]
    assert await life.reads() == []
    unread = await life.reads(found("sitemap-http-error"), outcome=DocumentOutcome.UNREAD)
    assert unread == ["+sitemap-http-error /a.xml"]


async def test_beyond_twenty_documents_one_event_has_the_number_of_the_others(
    session: AsyncSession,
):
    domain = await add_domain(session, baseline_scan_id=1)
    scan = await add_published_scan(session, domain)
    for number in range(33):
        sitemap = await add_sitemap(session, domain, f"{number:02d}.xml")
        await judge(session, scan, sitemap.id, found("url-invalid"))
    await announce(session, scan)
    rows = await session.scalars(select(FeedEvent).order_by(FeedEvent.id))
    told = words({"kind": r.kind, "sitemap": r.sitemap, "data": r.data} for r in rows)
    assert len(told) == 21
    assert "+url-invalid (13 more)" in told


async def test_a_document_that_is_gone_resolves_all_of_its_own(life: Life):
    await life.reads(found("lastmod-invalid"), found("url-invalid"))
    await resolve_findings_of(life.session, [life.sitemap.id])
    assert await life.publish() == [
        "+lastmod-invalid /a.xml",
        "+url-invalid /a.xml",
        "-lastmod-invalid /a.xml",
        "-url-invalid /a.xml",
    ]


async def test_rules_for_sites_resolve_only_their_own(life: Life):
    await life.reads(found("lastmod-invalid"))
    assert life.scan is not None
    own = [(None, found("robots-unreachable")), (life.sitemap.id, found("sitemap-orphan"))]
    codes = {"robots-unreachable", "sitemap-orphan"}
    await record_site_findings(life.session, life.scan.id, life.domain.id, own, codes)
    assert [code for code, _ in await life.states()] == [
        "robots-unreachable",
        "lastmod-invalid",
        "sitemap-orphan",
    ]
    await record_site_findings(life.session, life.scan.id, life.domain.id, own[:1], codes)
    assert await life.states(FindingState.RESOLVED) == [("sitemap-orphan", "resolved")]


async def test_findings_are_listed_the_worst_first_and_page_by_page(life: Life):
    codes = ["priority-ignored", "lastmod-uniform", "url-invalid", "lastmod-invalid"]
    await life.reads(*map(found, codes))
    shown, cursor = [], None
    for _ in codes:
        page = await list_findings(life.session, life.domain.id, limit=1, cursor=cursor)
        shown += [one.code for one in page.items]
        cursor = page.next_cursor
    assert (shown, cursor) == (
        ["url-invalid", "lastmod-invalid", "lastmod-uniform", "priority-ignored"],
        None,
    )
    severe = FindingFilter(severity=Severity.ERROR)
    assert len((await list_findings(life.session, life.domain.id, severe)).items) == 2
    # The code of a problem finds the rule that stands for it.
    by_problem = FindingFilter("lastmod_invalid")
    (one,) = (await list_findings(life.session, life.domain.id, by_problem)).items
    assert (one.code, one.severity, bool(one.why), bool(one.fix)) == (
        "lastmod-invalid",
        "error",
        True,
        True,
    )


async def test_totals_name_the_largest_sites_and_are_counted_once_a_minute(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    totals = FindingTotals()

    async def add(name: str, count: int) -> Domain:
        domain = await add_domain(session, name)
        scan = await add_published_scan(session, domain)
        sitemap = await add_sitemap(session, domain)
        await judge(session, scan, sitemap.id, found("lastmod-invalid", count, f"https://{name}/"))
        return domain

    await add("few.example", 3)
    first = await totals.read(session)
    domain = await add("many.example", 4)
    assert await totals.read(session) == first
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    (one,) = await totals.read(session)
    assert (one.count, one.documents, one.domains, one.new) == (7, 2, 2, 2)
    assert one.largest == ["many.example", "few.example"]
    (own,) = await total_findings(session, domain.id)
    assert (own.count, own.example, own.severity) == (4, "https://many.example/", "error")
