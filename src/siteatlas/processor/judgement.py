"""Judges all URLs of a site, some time after a scan that changed them or robots.txt.

Reading a document judges the document, and its publication judges the site by what is stored of
it. What only all URLs show together would make the publication of a large site wait. So it marks
the site, and one process after another takes a marked site for some minutes: if it dies, another
one begins anew. What it found counts only if no scan has changed the site meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

from siteatlas.aio import fair_loop
from siteatlas.catalog.findings import announce_findings, record_site_findings
from siteatlas.catalog.site_history import (
    DueSite,
    claim_due_site,
    end_due_site,
    find_in_urls,
    holds_due_site,
    load_robots,
    load_stored_site,
    stream_urls,
)
from siteatlas.findings.history import Found, judge_stored
from siteatlas.findings.judging import Finding, Notes, Sample
from siteatlas.findings.policies import CLOSED, OPENED, Agent, Policy, Purpose, known_agents
from siteatlas.findings.rules import RULES_VERSION, SITE_RULES, URL_RULES
from siteatlas.findings.site import SEARCH_ENGINES
from siteatlas.logs import get_logger
from siteatlas.scanner.discovery.robots import Rule
from siteatlas.scanner.reading.entries import MAX_SAMPLES
from siteatlas.storage.session import expensive_turn, get_background_session

log = get_logger("processor")

STATEMENT_SECONDS = 300


async def judge_next_site() -> bool:
    """Judge all URLs of a site that is due; False if none is."""
    async with get_background_session() as session, session.begin():
        due = await claim_due_site(session)
    if due is None:
        return False
    found, codes = await _judge(due), URL_RULES
    async with get_background_session() as session, session.begin():
        if not await holds_due_site(session, due):
            return True
        if due.rules_version != RULES_VERSION:
            # For the first time, or by the rules of another version so far.
            robots = await load_robots(session, due.id)
            origin, text = robots or ("", None)
            given = {"robots": text, "robots_origin": origin}
            found += judge_stored(await load_stored_site(session, due.scan_id, due.id, **given))
            codes |= SITE_RULES - {OPENED, CLOSED}
        await record_site_findings(session, due.scan_id, due.id, found, codes)
        await end_due_site(session, due)
        is_first = due.rules_version is None
        if is_first:
            await announce_findings(session, due.scan_id, due.id, is_silent=True)
        await announce_findings(session, due.scan_id, due.id, of_urls=True, is_silent=is_first)
    log.info("urls_judged", domain_id=str(due.id), findings=len(found))
    return True


async def _judge(due: DueSite) -> list[Found]:
    async with (
        expensive_turn(),
        get_background_session(statement_seconds=STATEMENT_SECONDS) as session,
        session.begin(),
    ):
        found: list[Found] = [
            (one.sitemap_id, Finding(one.code, "", one.total, tuple(map(Sample, one.samples))))
            for one in await find_in_urls(session, due.id)
        ]
        robots = await load_robots(session, due.id)
        access = None if robots is None else AccessJudge(*robots)
        if access is None or not access.forbids_anything:
            return found
        async for rows in stream_urls(session, due.id):
            async with fair_loop().time_slice():
                access.add(rows)
    return [*found, *access.findings()]


class AccessJudge:
    """Compares listed URLs with a robots.txt: which of them may whom not fetch."""

    def __init__(self, origin: str, robots: str) -> None:
        self._origin = origin
        self._policy = policy = Policy(robots)
        agents: dict[str, Iterable[Agent]] = {
            "url-disallowed": map(known_agents().find, SEARCH_ENGINES),
            "url-disallowed-ai-search": _agents_for(Purpose.AI_SEARCH),
            "url-disallowed-ai-training": _agents_for(Purpose.AI_TRAINING),
        }
        self._agents = {
            code: [one for one in of_code if policy.group_of(one).forbids]
            for code, of_code in agents.items()
        }
        self._all = list(dict.fromkeys(one for of_code in self._agents.values() for one in of_code))
        self._notes: dict[UUID, Notes] = defaultdict(lambda: Notes(""))

    @property
    def forbids_anything(self) -> bool:
        return any(self._agents.values())

    def add(self, rows: Sequence[tuple[UUID, str]]) -> None:
        """Compare these URLs; rules of the site say nothing of those of another origin."""
        start = len(self._origin)
        own = [row for row in rows if row[1].startswith(self._origin)]
        paths = [url[start:].partition("#")[0] or "/" for _, url in own]
        by_agent = self._policy.rules_for(self._all, paths)
        for code, agents in self._agents.items():
            # Agents for whom the same rules hold share one list.
            lists = {id(by_agent[agent.name]): agent.name for agent in reversed(agents)}
            blocked: dict[int, tuple[str, Rule]] = {}
            for agent in lists.values():
                for place, rule in enumerate(by_agent[agent]):
                    if rule is not None and not rule.allow:
                        blocked.setdefault(place, (agent, rule))
            by_sitemap: dict[UUID, list[int]] = defaultdict(list)
            for place in blocked:
                by_sitemap[own[place][0]].append(place)
            for sitemap_id, places in by_sitemap.items():
                agent, rule = blocked[places[0]]
                detail = f"{agent}: line {rule.line} of robots.txt, Disallow: {rule.pattern}"
                urls = [Sample(own[place][1]) for place in places[:MAX_SAMPLES]]
                self._notes[sitemap_id].add(code, urls, count=len(places), detail=detail)

    def findings(self) -> Iterable[tuple[UUID, Finding]]:
        for sitemap_id, notes in self._notes.items():
            for finding in notes.findings():
                yield sitemap_id, finding


def _agents_for(purpose: Purpose) -> Iterable[Agent]:
    return (agent for agent in known_agents().agents if agent.purpose is purpose)
