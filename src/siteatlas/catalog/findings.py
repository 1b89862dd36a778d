"""Findings of sites: recorded, announced in the change feed, shown, accepted.

A reading records what it found of a document, and resolves what a complete or unchanged document
no longer has; `processor.judgement` does so for what concerns a site. Either may belong to a scan
that is never published. So a row says two things: what was found last (`resolved_at`), and what
the feed has said (`announced`). Each publication compares them, in its transaction.

The first judgement by new rules is silent, since the site did not change: a row is then born as
announced. Sites and documents have the version of the rules that judged them last.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any, NamedTuple, cast
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Integer,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    collate,
    column,
    false,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.change_feed import next_number
from siteatlas.catalog.paging import CursorScope, Page, page_size, read_page
from siteatlas.catalog.views import (
    Count,
    Example,
    Line,
    Name,
    Paragraph,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import FindingNotFound
from siteatlas.findings.judging import Finding
from siteatlas.findings.rules import (
    FETCH_RULES,
    RULES_VERSION,
    SITE_RULES,
    URL_RULES,
    Rule,
    Severity,
    all_rules,
    rule_named,
    rules_by_problem,
)
from siteatlas.scanner.events import DocumentOutcome
from siteatlas.scanner.reading.entries import MAX_SAMPLES
from siteatlas.storage.models import Domain, FeedEventKind, Scan, Sitemap, StoredFinding
from siteatlas.storage.schema import DOMAINS, FEED_EVENTS, FINDINGS, SCANS, SITEMAPS
from siteatlas.text import storable, truncated

# Of one rule in one scan; what is beyond is one event with the number of documents.
MAX_EVENTS = 20
# An accepted finding that has grown so many times is told again.
GROWN = 10


class Judged(NamedTuple):
    """A document whose reading ended, with what was found in it."""

    sitemap_id: UUID
    findings: Sequence[Finding]
    outcome: DocumentOutcome
    is_new: bool = False


async def record_document_findings(
    session: AsyncSession, scan_id: int, judged: Collection[Judged]
) -> None:
    """Record what was found in documents; resolve what they no longer have.

    To be called before the documents get the version of the rules that judged them.
    """
    rows = [
        # A document that could not be read is news, by whatever rules the last one was judged.
        _row(finding, one.sitemap_id, since=0 if one.outcome is DocumentOutcome.UNREAD else None)
        for one in judged
        for finding in one.findings
    ]
    await _record(session, scan_id, rows, by_site=False)
    stored = [one for one in judged if not one.is_new]
    complete = [one.sitemap_id for one in stored if one.outcome is DocumentOutcome.COMPLETE]
    unchanged = [one.sitemap_id for one in stored if one.outcome is DocumentOutcome.UNCHANGED]
    if complete or unchanged:
        values = {"complete": complete, "unchanged": unchanged, "found": _keys(rows)}
        await session.execute(_resolve_of_documents, values)


async def record_site_findings(
    session: AsyncSession,
    scan_id: int,
    domain_id: UUID,
    findings: Iterable[tuple[UUID | None, Finding]],
    codes: Collection[str],
    *,
    again: Collection[str] = (),
) -> None:
    """Record what was found by rules for whole sites; resolve what else there was of `codes`.

    Findings of the rules in `again` tell of something that happened: they are announced each time.
    """
    rows = [_row(finding, sitemap_id) for sitemap_id, finding in findings]
    await _record(session, scan_id, rows, by_site=True, again=again)
    values = {"of_domain": domain_id, "codes": sorted(codes), "found": _keys(rows)}
    await session.execute(_resolve_of_site, values)


def _row(finding: Finding, sitemap_id: UUID | None, since: int | None = None) -> dict[str, Any]:
    return {
        "sitemap_id": sitemap_id and str(sitemap_id),
        "code": finding.code,
        "count": finding.count,
        "samples": [
            {key: storable(text, 500) for key, text in values if text is not None}
            for sample in finding.samples
            for values in [(("url", sample.url), ("value", sample.value))]
        ],
        "detail": storable(finding.detail, 500),
        "since": finding.rule.since if since is None else since,
    }


def _keys(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"sitemap_id": row["sitemap_id"], "code": row["code"]} for row in rows]


async def _record(
    session: AsyncSession,
    scan_id: int,
    rows: Sequence[dict[str, Any]],
    *,
    by_site: bool,
    again: Collection[str] = (),
) -> None:
    if rows:
        ordered = sorted(rows, key=lambda row: (row["sitemap_id"] or "", row["code"]))
        values = {"of_scan": scan_id, "by_site": by_site, "again": list(again), "rows": ordered}
        await session.execute(_record_rows, values)


_of_scan = bindparam("of_scan", type_=BigInteger())
_of_domain = bindparam("of_domain", type_=Uuid())


def _record_statement() -> Any:
    given = (
        func.jsonb_to_recordset(bindparam("rows", type_=JSONB()))
        .table_valued(
            column("sitemap_id", Uuid()),
            column("code", Text()),
            column("count", BigInteger()),
            column("samples", JSONB()),
            column("detail", Text()),
            column("since", Integer()),
            name="given",
        )
        .render_derived(with_types=True)
    )
    is_again = given.c.code == any_(bindparam("again", type_=ARRAY(Text())))
    judged_by = case(
        (bindparam("by_site"), DOMAINS.c.rules_version), else_=SITEMAPS.c.rules_version
    )
    is_new_rule = and_(~is_again, func.coalesce(judged_by < given.c.since, false()))
    # A first scan tells of nothing.
    is_silent = or_(is_new_rule, DOMAINS.c.baseline_scan_id.is_(None))
    row = (
        select(
            SCANS.c.domain_id,
            given.c.sitemap_id,
            given.c.code,
            given.c.count,
            given.c.samples,
            given.c.detail,
            is_silent,
            _of_scan,
            _of_scan,
        )
        .select_from(given)
        .join(SCANS, SCANS.c.id == _of_scan)
        .join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
        .outerjoin(SITEMAPS, SITEMAPS.c.id == given.c.sitemap_id)
        # Of a document that is gone, only that it can be read again is news.
        .where(
            or_(given.c.sitemap_id.is_(None), SITEMAPS.c.id.is_not(None)),
            or_(given.c.since > 0, SITEMAPS.c.gone_at.is_(None)),
        )
    )
    names = "domain_id sitemap_id code count samples detail announced first_scan_id last_scan_id"
    statement = insert(FINDINGS).from_select(names.split(), row)
    new, old = statement.excluded, FINDINGS.c
    happened = new.code == any_(bindparam("again", type_=ARRAY(Text())))
    returned = old.resolved_at.is_not(None)
    anew = or_(returned, happened)
    has_grown = and_(old.accepted_at.is_not(None), new.count >= GROWN * old.accepted_count)
    forget = or_(returned, has_grown)
    return statement.on_conflict_do_update(
        index_elements=[old.sitemap_id, old.domain_id, old.code],
        set_={
            "count": new.count,
            "samples": new.samples,
            "detail": new.detail,
            "last_scan_id": new.last_scan_id,
            "last_seen_at": func.now(),
            "resolved_at": null(),
            "first_scan_id": case((anew, new.first_scan_id), else_=old.first_scan_id),
            "first_seen_at": case((anew, func.now()), else_=old.first_seen_at),
            # What returns from a scan that told nobody of the end was never gone to readers.
            "announced": case(
                (or_(has_grown, happened), false()),
                (returned, or_(old.announced, new.announced)),
                else_=old.announced,
            ),
            **{
                name: case((forget, null()), else_=old[name])
                for name in ("accepted_at", "accepted_by", "accepted_reason", "accepted_count")
            },
        },
    )


def _found() -> Any:
    found = (
        func.jsonb_to_recordset(bindparam("found", type_=JSONB()))
        .table_valued(column("sitemap_id", Uuid()), column("code", Text()), name="found")
        .render_derived(with_types=True)
    )
    same = found.c.sitemap_id.is_not_distinct_from(FINDINGS.c.sitemap_id)
    return select(found.c.code).where(same, found.c.code == FINDINGS.c.code).exists()


# The rule that the last read of a document broke when it failed.
_last_error = literal(dict(rules_by_problem()), JSONB())[SITEMAPS.c.error_code].astext
_open = FINDINGS.c.resolved_at.is_(None)
_record_rows = _record_statement()
_resolve_of_documents = (
    update(FINDINGS)
    .where(
        SITEMAPS.c.id == FINDINGS.c.sitemap_id,
        or_(
            and_(
                FINDINGS.c.sitemap_id == any_(bindparam("complete", type_=ARRAY(Uuid()))),
                FINDINGS.c.code.not_in(SITE_RULES | URL_RULES),
            ),
            and_(
                FINDINGS.c.sitemap_id == any_(bindparam("unchanged", type_=ARRAY(Uuid()))),
                or_(FINDINGS.c.code.in_(FETCH_RULES), FINDINGS.c.code == _last_error),
            ),
        ),
        _open,
        ~_found(),
    )
    # Other rules may call the same fault by another name.
    .values(
        resolved_at=func.now(),
        announced=and_(
            FINDINGS.c.announced,
            or_(
                FINDINGS.c.code.in_(FETCH_RULES),
                func.coalesce(SITEMAPS.c.rules_version >= RULES_VERSION, true()),
            ),
        ),
    )
)
_resolve_of_site = (
    update(FINDINGS)
    .where(
        FINDINGS.c.domain_id == _of_domain,
        FINDINGS.c.code == any_(bindparam("codes", type_=ARRAY(Text()))),
        _open,
        ~_found(),
    )
    .values(resolved_at=func.now())
)
_resolve_of_gone = (
    update(FINDINGS)
    .where(
        FINDINGS.c.sitemap_id == any_(bindparam("ids", type_=ARRAY(Uuid()))),
        FINDINGS.c.code != "sitemap-vanished",
        _open,
    )
    .values(resolved_at=func.now())
)
_announce = (
    update(FINDINGS)
    .where(
        FINDINGS.c.domain_id == _of_domain,
        FINDINGS.c.announced != _open,
        FINDINGS.c.code.in_(URL_RULES) == bindparam("of_urls"),
    )
    .values(announced=_open)
    .returning(
        FINDINGS.c.code,
        FINDINGS.c.sitemap_id,
        FINDINGS.c.count,
        FINDINGS.c.samples,
        FINDINGS.c.detail,
        FINDINGS.c.resolved_at,
    )
)


async def resolve_findings_of(session: AsyncSession, gone: Collection[UUID]) -> None:
    """Resolve all that was found in documents that are gone."""
    if gone:
        await session.execute(_resolve_of_gone, {"ids": sorted(gone)})


async def announce_findings(
    session: AsyncSession,
    scan_id: int,
    domain_id: UUID,
    *,
    is_silent: bool = False,
    of_urls: bool = False,
) -> None:
    """Tell of findings that are new or resolved since the last publication.

    `of_urls`: those of the rules that judge all URLs, after the publication of the scan.
    """
    values = {"of_domain": domain_id, "of_urls": of_urls}
    rows = (await session.execute(_announce, values)).all()
    if not is_silent and (events := list(_events_of(rows))):
        await _add_events(session, scan_id, domain_id, events, numbered=of_urls)


def _events_of(rows: Iterable[Any]) -> Iterable[dict[str, Any]]:
    def kind_and_code(row: Any) -> tuple[str, str]:
        resolved = FeedEventKind.FINDING_RESOLVED
        return (resolved if row.resolved_at else FeedEventKind.FINDING_NEW).value, row.code

    ordered = sorted(rows, key=lambda row: (*kind_and_code(row), str(row.sitemap_id or "")))
    for (kind, code), group in groupby(ordered, kind_and_code):
        of_code = list(group)
        rule = all_rules().get(code)
        about: dict[str, Any] = {"code": code}
        if rule is not None:
            about |= {"severity": rule.severity.word, "title": rule.title}
        for row in of_code[:MAX_EVENTS]:
            told = {} if row.resolved_at else {"count": row.count, "detail": row.detail}
            if not row.resolved_at:
                told["samples"] = row.samples
            sitemap_id = row.sitemap_id and str(row.sitemap_id)
            yield {"kind": kind, "sitemap_id": sitemap_id, "data": about | told}
        if rest := of_code[MAX_EVENTS:]:
            yield {"kind": kind, "sitemap_id": None, "data": about | {"documents": len(rest)}}


_events = (
    func.jsonb_to_recordset(bindparam("events", type_=JSONB()))
    .table_valued(
        column("kind", FEED_EVENTS.c.kind.type),
        column("sitemap_id", Uuid()),
        column("data", JSONB()),
        name="given",
    )
    .render_derived(with_types=True)
)
_selected_events = (
    select(
        _of_scan.label("scan_id"),
        DOMAINS.c.id.label("domain_id"),
        DOMAINS.c.domain,
        _events.c.kind,
        _events.c.sitemap_id,
        SITEMAPS.c.url.label("sitemap"),
        _events.c.data,
        func.now().label("not_after"),
    )
    .select_from(_events)
    .join(DOMAINS, DOMAINS.c.id == _of_domain)
    .outerjoin(SITEMAPS, SITEMAPS.c.id == _events.c.sitemap_id)
)
_event_columns = [column.name for column in _selected_events.selected_columns]
_insert_events = insert(FEED_EVENTS).from_select(_event_columns, _selected_events)


def _event_numbering() -> Any:
    head = next_number().cte("head")
    number = select(head.c.seq).scalar_subquery()
    noted = update(DOMAINS).where(DOMAINS.c.id == _of_domain).values(last_published_seq=number)
    rows = _selected_events.add_columns(head.c.seq).join(head, true())
    inserted = insert(FEED_EVENTS).from_select([*_event_columns, "seq"], rows)
    return inserted.add_cte(noted.cte("noted"))


_insert_numbered_events = _event_numbering()


async def _add_events(
    session: AsyncSession,
    scan_id: int,
    domain_id: UUID,
    events: Sequence[Mapping[str, Any]],
    *,
    numbered: bool = False,
) -> None:
    """Write events of findings, each with its `kind`, its `sitemap_id` or None, and its `data`.

    `numbered`: the scan is published already, so they get a number of their own; the transaction
    ends with this.
    """
    values = {"of_scan": scan_id, "of_domain": domain_id, "events": list(events)}
    statement = _insert_numbered_events if numbered else _insert_events
    await session.execute(statement, values)


class FindingState(StrEnum):
    """Which findings to show; `current` are those that are neither resolved nor accepted."""

    CURRENT = "current"
    NEW = "new"
    ACCEPTED = "accepted"
    RESOLVED = "resolved"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class FindingSample(View):
    """One place; what is not known is null."""

    url: Annotated[Line | None, Field(description="The page, truncated after 500 characters.")]
    value: Annotated[Line | None, Field(description="The value in question, as listed.")]


@dataclass(frozen=True, slots=True)
class FindingView(View):
    """A rule that a document breaks, or the site as a whole if `sitemap` is null."""

    id: Annotated[Count, Example(17)]
    code: Annotated[Word, Example("lastmod-invalid")]
    severity: Annotated[Word, one_of(one.word for one in Severity), Example("error")]
    title: Annotated[Name, Example("A `lastmod` is not a date")]
    state: Annotated[
        Word,
        one_of(("new", "open", "accepted", "resolved")),
        Example("open"),
        Field(description="`new`: it came with the last scan."),
    ]
    sitemap: Annotated[Url | None, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID | None, Example(Shown.sitemap_id)]
    count: Annotated[Count, Example(1)]
    detail: Annotated[Line, Example("3 of 120")]
    samples: Annotated[
        list[FindingSample],
        declared(maxItems=MAX_SAMPLES),
        Example([{"url": "https://example.com/about", "value": "yesterday"}]),
    ]
    why: Annotated[Paragraph, Example("Readers ignore it.")]
    fix: Annotated[Paragraph, Example("Write dates as in W3C Datetime.")]
    first_scan_id: Annotated[SmallCount, Example(3)]
    last_scan_id: Annotated[SmallCount, Example(7)]
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
    resolved_at: Annotated[datetime | None, Field(description="When it was no longer found.")]
    accepted_at: datetime | None
    accepted_reason: Line | None


@dataclass(frozen=True, slots=True)
class FindingFilter:
    """What to show. `code` may also be that of a problem; `sitemap` is the URL of a document."""

    code: str | None = None
    sitemap: str | None = None
    severity: Severity = Severity.NOTE
    state: FindingState = FindingState.CURRENT


def _worst_first() -> list[str]:
    return sorted(all_rules(), key=lambda code: -all_rules()[code].severity)


def _place(code: Any) -> Any:
    """Where a rule comes in lists; a rule of another version comes last."""
    place = func.array_position(literal(_worst_first(), ARRAY(Text())), code)
    return func.coalesce(place, len(all_rules()) + 1)


def _last_scan(domain_id: Any) -> Any:
    """The last published scan of a site."""
    scans = select(func.max(Scan.id)).where(Scan.published_seq.is_not(None))
    return scans.where(Scan.domain_id == domain_id).scalar_subquery()


def _state_of(last_scan: Any) -> Any:
    return case(
        (StoredFinding.resolved_at.is_not(None), "resolved"),
        (StoredFinding.accepted_at.is_not(None), "accepted"),
        (StoredFinding.first_scan_id >= func.coalesce(last_scan, 0), "new"),
        else_="open",
    )


async def list_findings(
    session: AsyncSession,
    domain_id: UUID,
    wanted: FindingFilter = FindingFilter(),
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[FindingView]:
    """The findings of a site: the worst rules first, then by document."""
    filters = (domain_id, wanted.code, wanted.sitemap, wanted.severity.word, wanted.state.value)
    scope = CursorScope("findings", filters)
    after = scope.read(cursor, lambda parts: (int(parts[0]), int(parts[1])))
    place, state = _place(StoredFinding.code), _state_of(_last_scan(domain_id))
    statement = (
        select_view(
            FindingView,
            StoredFinding,
            severity=StoredFinding.code,
            title=StoredFinding.code,
            why=StoredFinding.code,
            fix=StoredFinding.code,
            state=state,
            sitemap=Sitemap.url,
        )
        .outerjoin(Sitemap, Sitemap.id == StoredFinding.sitemap_id)
        .where(StoredFinding.domain_id == domain_id)
    )
    match wanted.state:
        case FindingState.CURRENT:
            statement = statement.where(state.in_(("new", "open")))
        case FindingState.ALL:
            pass
        case _:
            statement = statement.where(state == wanted.state.value)
    if wanted.code is not None:
        rule = rule_named(wanted.code)
        statement = statement.where(StoredFinding.code == (rule.code if rule else wanted.code))
    if wanted.severity > Severity.NOTE:
        codes = [code for code, rule in all_rules().items() if rule.severity >= wanted.severity]
        statement = statement.where(StoredFinding.code.in_(codes))
    if wanted.sitemap is not None:
        statement = statement.where(Sitemap.url == wanted.sitemap)
    if after is not None:
        statement = statement.where(tuple_(place, StoredFinding.id) > tuple_(*map(literal, after)))

    def cursor_of(row: Any) -> str:
        order = _worst_first()
        known = order.index(row.code) if row.code in all_rules() else len(order)
        return scope.write(known + 1, row.id)

    statement = statement.order_by(place, StoredFinding.id)
    return await read_page(session, statement, page_size(limit), _view, cursor_of)


def _view(*row: Any) -> FindingView:
    view = FindingView(*row)
    rule = all_rules().get(view.code)
    stored = cast("list[dict[str, Any]]", view.samples)
    samples = [FindingSample(one.get("url"), one.get("value")) for one in stored]
    if rule is None:
        return replace(view, severity="note", title=view.code, why="", fix="", samples=samples)
    return replace(
        view,
        severity=rule.severity.word,
        title=rule.title,
        why=rule.why,
        fix=rule.fix,
        samples=samples,
    )


@dataclass(frozen=True, slots=True)
class FindingTotal:
    """What a rule found that is not resolved: in one site, or in all of them.

    `new` and `accepted` count findings, of which each is of one document. `largest` are the sites
    that have most of it.
    """

    code: str
    count: int
    documents: int
    domains: int
    new: int
    accepted: int
    since: datetime
    largest: list[str]
    example: str | None

    @property
    def rule(self) -> Rule:
        """The rule; one of another version has only its code."""
        return all_rules().get(self.code) or Rule(
            self.code, Severity.NOTE, self.code, why="", fix="", stated_by=(), needs=()
        )

    @property
    def severity(self) -> str:
        return self.rule.severity.word

    @property
    def title(self) -> str:
        return self.rule.title

    @property
    def is_accepted(self) -> bool:
        return self.accepted == self.documents


class FindingTotals:
    """What is wrong in all sites, counted once a minute: it means reading all of it.

    The caller sees to it that `read` runs once at a time.
    """

    def __init__(self) -> None:
        self._totals: list[FindingTotal] = []
        self._good_until = 0.0

    async def read(self, session: AsyncSession) -> list[FindingTotal]:
        """The totals, at most a minute old."""
        if time.monotonic() >= self._good_until:
            self._totals = await total_findings(session)
            self._good_until = time.monotonic() + 60.0
        return self._totals


async def total_findings(
    session: AsyncSession, domain_id: UUID | None = None
) -> list[FindingTotal]:
    """What is not resolved, by rule: the worst first, among them what is new, then the largest."""
    sample = StoredFinding.samples[0]
    example = func.coalesce(sample["value"].astext, sample["url"].astext)
    last = _last_scan(Domain.id).correlate(Domain)
    accepted = StoredFinding.accepted_at.is_not(None)
    sites = select(Domain.id, Domain.domain, last.label("last")).where(Domain.deleted_at.is_(None))
    if domain_id is not None:
        sites = sites.where(Domain.id == domain_id)
    site = sites.subquery("site")
    ranked = (
        select(
            StoredFinding.code,
            site.c.domain,
            func.sum(StoredFinding.count).label("count"),
            func.count().label("documents"),
            func.count().filter(StoredFinding.first_scan_id >= site.c.last, ~accepted).label("new"),
            func.count().filter(accepted).label("accepted"),
            func.min(StoredFinding.first_seen_at).label("since"),
            func.min(collate(example, "C")).label("example"),
        )
        .join(site, site.c.id == StoredFinding.domain_id)
        .where(StoredFinding.resolved_at.is_(None))
        .group_by(StoredFinding.code, site.c.domain)
        .subquery("ranked")
    )
    order = aggregate_order_by(ranked.c.domain, ranked.c.count.desc(), ranked.c.domain)
    statement = select(
        ranked.c.code,
        func.sum(ranked.c.count),
        func.sum(ranked.c.documents),
        func.count(),
        func.sum(ranked.c.new),
        func.sum(ranked.c.accepted),
        func.min(ranked.c.since),
        func.array_agg(order)[1:5],
        func.min(ranked.c.example),
    ).group_by(ranked.c.code)
    rows = await session.execute(statement)
    totals = []
    for code, *counts, since, largest, example_of in rows:
        count, documents, domains, new, accepted_now = map(int, counts)
        totals.append(
            FindingTotal(
                code, count, documents, domains, new, accepted_now, since, largest, example_of
            )
        )
    return sorted(
        totals,
        key=lambda one: (one.is_accepted, -one.rule.severity, one.new == 0, -one.count, one.code),
    )


async def accept_findings(
    session: AsyncSession,
    domain_id: UUID,
    code: str,
    *,
    user_id: UUID,
    reason: str | None,
    sitemap: str | None = None,
) -> int:
    """Accept what a rule found in a site, or in one document of it; without a reason take it back.

    Return how many findings that were. Raises FindingNotFound if there is none.
    """
    rule = rule_named(code)
    wanted = [
        StoredFinding.domain_id == domain_id,
        StoredFinding.code == (rule.code if rule else code),
        StoredFinding.resolved_at.is_(None),
    ]
    if sitemap is not None:
        ids = select(Sitemap.id).where(Sitemap.domain_id == domain_id, Sitemap.url == sitemap)
        wanted.append(StoredFinding.sitemap_id.in_(ids))
    given: dict[str, Any] = dict.fromkeys(
        ("accepted_at", "accepted_by", "accepted_reason", "accepted_count")
    )
    if reason is not None:
        given = {
            "accepted_at": func.now(),
            "accepted_by": user_id,
            "accepted_reason": truncated(reason, 500),
            "accepted_count": StoredFinding.count,
        }
    changed = await session.execute(
        update(StoredFinding).where(*wanted).values(given).returning(StoredFinding.id)
    )
    if not (count := len(changed.all())):
        raise FindingNotFound
    return count
