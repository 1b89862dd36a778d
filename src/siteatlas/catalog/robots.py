"""The robots.txt of a site: its versions as scans found them, what each of them changed, and who
may fetch what by it, which `siteatlas.findings.policies` judges.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    BindParameter,
    Boolean,
    Integer,
    Text,
    Uuid,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.catalog.domains import DomainView
from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page
from siteatlas.catalog.sections import domain_sections
from siteatlas.catalog.views import (
    Count,
    Example,
    Line,
    Name,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    extended,
    one_of,
    select_view,
    view_example,
)
from siteatlas.findings.policies import (
    AccessChange,
    Agent,
    Policy,
    Purpose,
    compare_access,
    known_agents,
    path_of,
)
from siteatlas.scanner.discovery.robots import MAX_USAGE_LINES
from siteatlas.storage.models import RobotsFile
from siteatlas.storage.schema import ROBOTS_FILES
from siteatlas.text import line_diff


@dataclass(frozen=True, slots=True)
class RobotsText:
    """A robots.txt as an origin gave it; no file is an empty text."""

    origin: str
    content: str
    http_status: int | None
    truncated: bool


@dataclass(frozen=True, slots=True)
class RobotsChange:
    """The text that an origin gave before, and the new one, which is stored."""

    before: str
    after: str
    http_status_before: int | None


async def record_robots(
    session: AsyncSession, domain_id: UUID, text: RobotsText
) -> RobotsChange | None:
    """Record the robots.txt of an origin; return what it replaced, None if that was the same."""
    values = {
        "of_domain": domain_id,
        "its_origin": text.origin,
        "its_hash": hashlib.sha256(text.content.encode("utf-8", "surrogatepass")).hexdigest(),
        "its_content": text.content,
        "its_status": text.http_status,
        "is_truncated": text.truncated,
    }
    replaced = (await session.execute(_record, values)).one_or_none()
    if replaced is None or replaced.id is None:
        return None
    content = await session.scalar(_load_content, {"its_id": replaced.id})
    return RobotsChange(content or "", text.content, replaced.http_status)


def _record_statement() -> Any:
    """Note that the last version was seen again, or store a new one; give the one before."""
    files = ROBOTS_FILES
    new: dict[str, BindParameter[Any]] = {
        "domain_id": bindparam("of_domain", type_=Uuid()),
        "origin": bindparam("its_origin", type_=Text()),
        "content_hash": bindparam("its_hash", type_=Text()),
        "content": bindparam("its_content", type_=Text()),
        "http_status": bindparam("its_status", type_=Integer()),
        "truncated": bindparam("is_truncated", type_=Boolean()),
    }
    latest = (
        select(files.c.id, files.c.content_hash, files.c.http_status)
        .where(files.c.domain_id == new["domain_id"], files.c.origin == new["origin"])
        .order_by(files.c.id.desc())
        .limit(1)
        .cte("latest")
    )
    seen = (
        update(files)
        .where(files.c.id == latest.c.id, latest.c.content_hash == new["content_hash"])
        .values(last_seen_at=func.now())
        .returning(files.c.id)
        .cte("seen")
    )
    values = select(*new.values()).where(~select(seen.c.id).exists())
    added = insert(files).from_select(list(new), values).returning(files.c.id).cte("added")
    return select(latest.c.id, latest.c.http_status).select_from(added.outerjoin(latest, true()))


_record = _record_statement()
_load_content = select(ROBOTS_FILES.c.content).where(ROBOTS_FILES.c.id == bindparam("its_id"))


FileText = Annotated[str, declared(maxLength=1_000_000)]


@dataclass(frozen=True, slots=True)
class RobotsFileView(View):
    """One version of the robots.txt of an origin of a site."""

    id: Annotated[Count, Example(3)]
    origin: Annotated[Url, Example("https://www.example.com")]
    http_status: Annotated[SmallCount | None, Example(200)]
    truncated: Annotated[
        bool,
        Example(False),
        Field(description="True if the file is longer than what is read of it."),
    ]
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
    content: Annotated[FileText, Example("User-agent: *\n")]
    diff: Annotated[
        FileText | None,
        Example("-Disallow: /\n+User-agent: *"),
        Field(
            description="What differs from the version before, line by line; null for the first "
            "one."
        ),
    ]


async def list_robots_files(
    session: AsyncSession,
    domain_id: UUID,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[RobotsFileView]:
    """The versions of the robots.txt files of a site, newest first."""
    scope = CursorScope("robots", (domain_id,))
    before = scope.read(cursor, bigint_key)
    earlier = aliased(RobotsFile)
    previous = (
        select(earlier.content)
        .where(
            earlier.domain_id == RobotsFile.domain_id,
            earlier.origin == RobotsFile.origin,
            earlier.id < RobotsFile.id,
        )
        .order_by(earlier.id.desc())
        .limit(1)
        .correlate(RobotsFile)
        .scalar_subquery()
    )
    statement = select_view(RobotsFileView, RobotsFile, diff=previous)
    statement = statement.where(RobotsFile.domain_id == domain_id)
    if before is not None:
        statement = statement.where(RobotsFile.id < before)
    newest = statement.order_by(RobotsFile.id.desc())
    return await read_page(
        session, newest, page_size(limit), _robots_file_view, lambda row: scope.write(row.id)
    )


def _robots_file_view(*row: Any) -> RobotsFileView:
    """The view of a row that has the text of the version before in the place of the diff."""
    view = RobotsFileView(*row)
    previous = view.diff
    return view if previous is None else replace(view, diff=line_diff(previous, view.content))


# Beside the whole site, its largest sections.
MAX_PATHS = 8


@dataclass(frozen=True, slots=True)
class DecisionView(View):
    """Whether an agent may fetch a path, and the line that decides; null if no rule covers it."""

    path: Annotated[Url, Example("/blog/")]
    allowed: Annotated[bool, Example(False)]
    line: Annotated[SmallCount | None, Example(7)]
    rule: Annotated[Line | None, Example("Disallow: /blog/")]
    exceptions: Annotated[
        SmallCount,
        Example(0),
        Field(description="Number of rules with the other answer for addresses below the path."),
    ]


@dataclass(frozen=True, slots=True)
class AgentPolicyView(View):
    """What an agent may fetch."""

    agent: Annotated[Line, Example("GPTBot")]
    purpose: Annotated[
        Annotated[str, one_of(Purpose)] | None,
        Example("ai_training"),
        Field(description="What it fetches for; null if it is not known."),
    ]
    operator: Annotated[Word | None, Example("OpenAI")]
    group: Annotated[
        Line | None,
        Example("gptbot"),
        Field(description="Whose rules hold for it; null if there are neither its own nor `*`."),
    ]
    decisions: Annotated[
        list[DecisionView], declared(maxItems=MAX_PATHS + 1), Example([view_example(DecisionView)])
    ]


@dataclass(frozen=True, slots=True)
class UsageView(View):
    """A `Content-Signal` or `Content-Usage` line, its first 100 agents, and what is wrong with it,
    in sentences.
    """

    line: Annotated[SmallCount, Example(3)]
    text: Annotated[Line, Example("Content-Signal: search=yes, ai-train=no")]
    agents: Annotated[list[Line], declared(maxItems=100), Example(["*"])]
    path: Annotated[Url | None, Example(None)]
    values: Annotated[dict[Word, Word], Example({"search": "yes", "ai-train": "no"})]
    invalid: Annotated[list[Line], declared(maxItems=100), Example([])]
    contradicts: Annotated[list[Line], declared(maxItems=100), Example([])]


@dataclass(frozen=True, slots=True)
class PolicyView(View):
    """Who may fetch what, by the robots.txt of a site as last read."""

    origin: Annotated[
        Url | None,
        Example("https://www.example.com"),
        Field(description="Where it was read; null if none is stored."),
    ]
    truncated: Annotated[
        bool, Example(False), Field(description="True if not all of its rules were read.")
    ]
    last_seen_at: Annotated[datetime | None, Example(Shown.later)]
    agents_as_of: Annotated[
        date, Example("2026-08-22"), Field(description="The day of the list of known agents.")
    ]
    paths: Annotated[list[Name], declared(maxItems=MAX_PATHS + 1), Example(["/blog/"])]
    agents: Annotated[
        list[AgentPolicyView], declared(maxItems=1_000), Example([view_example(AgentPolicyView)])
    ]
    usage: Annotated[
        list[UsageView], declared(maxItems=MAX_USAGE_LINES), Example([view_example(UsageView)])
    ]


async def find_policy(
    session: AsyncSession, site: DomainView, *, agent: str | None = None, path: str | None = None
) -> PolicyView:
    """What agents may fetch: all that are known or one, the sections of a site or one path."""
    statement = (
        select(RobotsFile)
        .where(RobotsFile.domain_id == site.id)
        # The site may have answered at other origins before.
        .order_by(
            (RobotsFile.origin == site.origin).desc().nulls_last(),
            RobotsFile.last_seen_at.desc(),
            RobotsFile.id.desc(),
        )
        .limit(1)
    )
    file = await session.scalar(statement)
    paths = [path_of(path)] if path else await section_paths(session, site.id)
    # A long file takes longer than other requests can wait.
    return await asyncio.to_thread(judge, file, paths, agent)


async def section_paths(session: AsyncSession, domain_id: UUID) -> list[str]:
    """The whole site and its largest sections."""
    sections = (await domain_sections(session, domain_id, limit=MAX_PATHS)).sections
    return list(dict.fromkeys(["/", *(one.section for one in sections)]))


def judge(file: RobotsFile | None, paths: Sequence[str], agent: str | None = None) -> PolicyView:
    """What a robots.txt lets agents fetch; nothing is said without one."""
    known = known_agents()
    if file is None:
        return PolicyView(None, False, None, known.as_of, list(paths), [], [])
    policy = Policy(file.content)
    wanted = [known.find(agent)] if agent else known.agents
    agents = [_agent_view(policy, one, paths) for one in wanted]
    return PolicyView(
        origin=file.origin,
        truncated=file.truncated or policy.is_truncated,
        last_seen_at=file.last_seen_at,
        agents_as_of=known.as_of,
        paths=list(paths),
        agents=agents,
        usage=[extended(UsageView, one) for one in policy.usages()],
    )


def _agent_view(policy: Policy, agent: Agent, paths: Iterable[str]) -> AgentPolicyView:
    decisions = [_decision_view(policy, agent, path) for path in paths]
    group = policy.group_for(agent)
    return AgentPolicyView(agent.name, agent.purpose, agent.operator, group, decisions)


def _decision_view(policy: Policy, agent: Agent, path: str) -> DecisionView:
    rule, exceptions = policy.decide(agent, path)
    if rule is None:
        return DecisionView(path, True, None, None, exceptions)
    return DecisionView(path, rule.allow, rule.line, policy.line(rule.line), exceptions)


def access_changes(
    versions: Sequence[RobotsFileView], sections: Sequence[str]
) -> dict[int, list[AccessChange]]:
    """By version, the newest first, whom it let in or shut out since the one before among them."""
    before: dict[str, str] = {}
    found = {}
    for version in reversed(versions):
        if version.origin in before:
            changes = compare_access(before[version.origin], version.content, sections)
            found[version.id] = changes
        before[version.origin] = version.content
    return found
