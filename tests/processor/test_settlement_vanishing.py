"""Which unread documents have vanished, and which of them are requested."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from siteatlas.catalog.removals import ParentLink, UnreadDocument
from siteatlas.errors import Blocked, HttpNotFound, ServerError, SiteatlasError, Timeout
from siteatlas.processor.settlement import MAX_PROBES, Answer, VanishingSearch
from siteatlas.storage.models import SitemapScanState

READ_AT = datetime(2026, 11, 1, tzinfo=UTC)
A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def document(key: UUID = A, **values: object) -> UnreadDocument:
    """A document that the scan never came across."""
    usual = {
        "id": key,
        "url": f"https://example.com/{key.int}.xml",
        "requested_url": None,
        "discovery_method": "sitemap_index",
        "state": None,
        "http_status": None,
        "error_code": None,
        "candidate_status": None,
        "url_count": 1,
        "last_complete_at": READ_AT,
        "vanished_at": None,
        "vanished_scan_id": None,
        "vanished_scan_started_at": None,
    }
    return UnreadDocument(**{**usual, **values})  # type: ignore[arg-type]


class Site:
    """Answers probes, and remembers what was asked."""

    def __init__(self, answer: str | SiteatlasError | None = None, *, other: bool = False) -> None:
        self.asked: list[str] = []
        self._answer = answer
        self._other = other

    async def probe(self, urls: Iterable[str]) -> AsyncIterator[Answer]:
        for url in urls:
            self.asked.append(url)
            yield url, self._answer or url

    async def is_other_document(self, _url: str, _document: UUID) -> bool:
        return self._other

    async def search(
        self,
        *documents: UnreadDocument,
        parents: Iterable[ParentLink] = (),
        sees_all_names: bool = True,
    ) -> VanishingSearch:
        return await VanishingSearch(
            documents, list(parents), sees_all_names, self.probe, self.is_other_document
        ).run()


@pytest.mark.parametrize("status", [404, 410])
async def test_a_named_document_that_is_not_found_has_vanished(status: int) -> None:
    site = Site()
    unread = document(state=SitemapScanState.UNREAD, http_status=status)
    found = await site.search(unread, sees_all_names=False)
    assert (found.ids, found.not_found, site.asked) == ({A}, {A}, [])


@pytest.mark.parametrize("status", [402, 403, 500, 200, None])
async def test_a_named_document_with_a_fault_has_not_vanished(status: int | None) -> None:
    site = Site()
    found = await site.search(document(state=SitemapScanState.UNREAD, http_status=status))
    assert (found.ids, site.asked) == (set(), [])


@pytest.mark.parametrize(
    ("answer", "vanished"),
    [
        (None, True),
        (HttpNotFound(), True),
        (Blocked(), False),
        (ServerError(), False),
        (Timeout(), False),
    ],
)
async def test_a_document_that_nothing_names_is_asked(
    answer: SiteatlasError | None, vanished: bool
) -> None:
    site = Site(answer)
    found = await site.search(document())
    assert (A in found.ids, site.asked) == (vanished, [document().url])


async def test_nothing_is_known_of_documents_if_not_all_names_were_seen() -> None:
    site = Site()
    found = await site.search(document(), sees_all_names=False)
    assert (found.ids, site.asked) == (set(), [])


@pytest.mark.parametrize(
    ("is_read", "is_gone", "vanished"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
async def test_a_child_has_vanished_only_if_its_index_was_read_or_is_gone(
    is_read: bool, is_gone: bool, vanished: bool
) -> None:
    links = [ParentLink(A, B, is_read, is_gone)]
    found = await Site().search(document(), parents=links)
    assert (A in found.ids) is vanished


async def test_children_follow_an_index_that_vanished_through_all_levels() -> None:
    top = document(C, state=SitemapScanState.UNREAD, http_status=404)
    links = [ParentLink(B, C, False, False), ParentLink(A, B, False, False)]
    found = await Site().search(document(A), document(B), top, parents=links)
    assert found.ids == {A, B, C}


async def test_a_guessed_document_that_is_still_there_has_not_vanished() -> None:
    found = await Site().search(document(discovery_method="common_path"))
    assert found.ids == set()


async def test_a_guess_that_failed_in_this_scan_needs_no_second_request() -> None:
    site = Site()
    found = await site.search(document(discovery_method="common_path", candidate_status=404))
    assert (found.not_found, site.asked) == ({A}, [])


async def test_a_redirect_to_another_document_leaves_the_first_one_behind() -> None:
    moved = document(state=SitemapScanState.UNREAD, error_code="not_asked")
    target = "https://example.com/other.xml"
    assert (await Site(target, other=True).search(moved)).ids == {A}
    assert (await Site(target, other=False).search(moved)).ids == set()


@pytest.mark.parametrize(
    "given_up", [document(discovery_method="manual"), document(last_complete_at=None)]
)
async def test_documents_that_were_given_up_are_not_asked(given_up: UnreadDocument) -> None:
    site = Site()
    found = await site.search(given_up)
    assert (found.ids, site.asked) == ({A}, [])


async def test_requests_are_limited_and_earlier_answers_count() -> None:
    site = Site()
    many = [document(UUID(int=number)) for number in range(1, MAX_PROBES + 11)]
    many[-1] = replace(many[-1], vanished_at=READ_AT)
    found = await site.search(*many)
    assert len(site.asked) == MAX_PROBES
    assert len(found.ids) == MAX_PROBES + 1
    assert many[-1].id in found.ids
