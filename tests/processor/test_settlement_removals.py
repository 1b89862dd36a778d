"""When missing URLs count as removed: every rule of the decision, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import pytest

from siteatlas.catalog.removals import CompleteRead, MissingUrls, UnreadDocument
from siteatlas.processor.settlement import (
    HoldReason,
    RemovalDecision,
    RemovalFacts,
    RemovalRules,
    decide_removals,
    dump_decision,
    load_decision_from,
    may_remove_at_once,
)
from siteatlas.storage.models import RemovalEvidence

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = RemovalRules(confirm_after=HOUR, hold_at_most=timedelta(days=7))
A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def missing(age: timedelta, *, read_again: bool = True, is_empty: bool = False) -> MissingUrls:
    """URLs of document A that a scan missed some time ago."""
    missed_at = NOW - age
    return MissingUrls(
        A,
        "https://example.com/a.xml",
        scan_id=7,
        count=3,
        read_again_at=NOW if read_again else None,
        is_empty=is_empty,
        scan_started_at=missed_at - timedelta(minutes=1),
        missed_at=missed_at,
        last_seen_at=missed_at - timedelta(days=1),
    )


def read(document: UUID, ago: timedelta | None) -> CompleteRead:
    """A document that was last read some time ago."""
    url = f"https://example.com/{document.int}.xml"
    return url, None if ago is None else NOW - ago


def vanished(age: timedelta, *, again: bool = True) -> UnreadDocument:
    """Document C, which vanished some time ago."""
    return UnreadDocument(
        C,
        "https://example.com/c.xml",
        requested_url=None,
        discovery_method="robots_txt",
        state=None,
        http_status=None,
        error_code=None,
        candidate_status=None,
        url_count=5,
        last_complete_at=NOW - age - HOUR,
        vanished_at=NOW - age,
        vanished_scan_id=1,
        vanished_scan_started_at=NOW - age - timedelta(minutes=1),
        vanished_again=again,
    )


def facts(**values: object) -> RemovalFacts:
    """A complete scan of a site of 100 URLs in which all documents were read just now."""
    usual = {
        "now": NOW,
        "is_full_scan": True,
        "oldest_reads": [read(A, timedelta()), read(B, timedelta())],
        "leaving": 3,
        "url_count": 100,
    }
    return RemovalFacts(**{**usual, **values})  # type: ignore[arg-type]


def evidence(decision: RemovalDecision) -> str | None:
    """The evidence of the only removal; None if all is held."""
    if not decision.removals:
        return None
    (removal,) = decision.removals
    return removal.evidence.value


@pytest.mark.parametrize(
    ("is_full", "is_read", "few", "is_empty", "is_old"),
    list(product((True, False), repeat=5)),
)
def test_missing_urls_are_removed_by_one_complete_scan_or_a_later_read(
    is_full: bool, is_read: bool, few: bool, is_empty: bool, is_old: bool
) -> None:
    age = 2 * HOUR if is_old else timedelta(minutes=5)
    decision = decide_removals(
        facts(
            is_full_scan=is_full,
            missing=[missing(age, is_empty=is_empty)],
            oldest_reads=[read(A, timedelta()), read(B, timedelta() if is_read else 5 * HOUR)],
            leaving=3 if few else 51,
        ),
        RULES,
    )
    expected = None
    if is_read and is_old:
        expected = "confirmed"
    elif is_read and is_full and few and not is_empty:
        expected = "complete"
    assert evidence(decision) == expected
    assert decision.held.count == (0 if expected else 3)


def test_a_second_read_too_soon_confirms_nothing() -> None:
    urls = replace(missing(timedelta(minutes=59)), is_empty=True)
    assert evidence(decide_removals(facts(missing=[urls]), RULES)) is None


def test_time_alone_confirms_nothing_if_the_document_was_not_read_again() -> None:
    urls = missing(5 * HOUR, read_again=False)
    decision = decide_removals(facts(is_full_scan=False, missing=[urls]), RULES)
    assert (evidence(decision), decision.held.count) == (None, 3)


def test_a_hold_ends_after_its_time_whatever_is_in_the_way() -> None:
    week = facts(
        is_full_scan=False,
        missing=[missing(timedelta(days=7), read_again=False)],
        oldest_reads=[read(B, None)],
    )
    assert evidence(decide_removals(week, RULES)) == "timeout"


def test_a_released_hold_removes_everything() -> None:
    held = facts(
        is_full_scan=False,
        missing=[missing(timedelta())],
        vanished=[vanished(timedelta())],
        oldest_reads=[read(B, None)],
    )
    decision = decide_removals(held, replace(RULES, released=True))
    assert {removal.evidence for removal in decision.removals} == {RemovalEvidence.RELEASED}
    assert (len(decision.removals), decision.held.count) == (2, 0)


def test_a_removal_says_between_which_reads_the_urls_vanished() -> None:
    urls = missing(timedelta(minutes=5))
    (removal,) = decide_removals(facts(missing=[urls]), RULES).removals
    assert (removal.not_before, removal.not_after) == (urls.last_seen_at, urls.missed_at)
    assert (removal.sitemap_id, removal.missing_scan_id) == (A, 7)


@pytest.mark.parametrize(
    ("age", "again", "others_read", "expected"),
    [
        (timedelta(minutes=59), True, True, None),
        (HOUR, True, True, "confirmed"),
        (HOUR, True, False, None),
        (HOUR, False, True, None),
        (timedelta(days=7), False, False, "timeout"),
    ],
)
def test_a_vanished_document_is_gone_when_a_later_scan_finds_that_too(
    age: timedelta, again: bool, others_read: bool, expected: str | None
) -> None:
    others = [read(A, timedelta() if others_read else timedelta(days=30))]
    found = facts(vanished=[vanished(age, again=again)], oldest_reads=others)
    decision = decide_removals(found, RULES)
    assert evidence(decision) == expected
    assert set(decision.gone) == ({C} if expected else set())
    assert decision.held.count == (0 if expected else 5)


def test_two_vanished_documents_are_not_in_each_others_way() -> None:
    both = [vanished(HOUR), replace(vanished(2 * HOUR), id=B)]
    decision = decide_removals(facts(vanished=both, oldest_reads=[read(A, timedelta())]), RULES)
    assert set(decision.gone) == {B, C}


def test_a_vanished_document_that_is_not_gone_is_in_the_way() -> None:
    found = facts(missing=[missing(timedelta())], vanished=[vanished(timedelta(minutes=5))])
    decision = decide_removals(found, RULES)
    assert (decision.removals, decision.held.count) == ((), 3 + 5)
    assert decision.held.documents == {"https://example.com/c.xml": HoldReason.VANISHED}


def test_a_scan_is_complete_if_all_that_it_could_not_read_is_gone() -> None:
    found = facts(missing=[missing(timedelta())], vanished=[vanished(HOUR)], incomplete={C})
    kinds = {removal.evidence.value for removal in decide_removals(found, RULES).removals}
    assert kinds == {"confirmed", "complete"}
    other = replace(found, incomplete={B, C})
    kinds = {removal.evidence.value for removal in decide_removals(other, RULES).removals}
    assert kinds == {"confirmed"}


@pytest.mark.parametrize(
    ("leaving", "url_count", "expected"),
    [(20, 20, True), (21, 41, False), (21, 42, True), (0, 0, True), (50, 100, True)],
)
def test_half_of_the_urls_or_twenty_may_leave_at_once(
    leaving: int, url_count: int, expected: bool
) -> None:
    assert may_remove_at_once(leaving, url_count) is expected


def test_a_held_event_names_at_most_twenty_documents() -> None:
    others = [read(UUID(int=number), None) for number in range(10, 40)]
    held = decide_removals(facts(missing=[missing(HOUR)], oldest_reads=others), RULES).held
    data = held.data()
    assert (data["count"], len(data["documents"]), data["more_documents"]) == (3, 20, 10)
    assert data["documents"][0]["reason"] == "unread"


def test_a_decision_is_the_same_after_it_was_stored() -> None:
    found = facts(
        missing=[missing(timedelta()), replace(missing(HOUR), is_empty=True, sitemap_id=B)],
        vanished=[vanished(HOUR)],
    )
    decision = decide_removals(found, RULES)
    assert decision.removals
    assert load_decision_from(dump_decision(decision)) == decision
