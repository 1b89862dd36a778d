"""The order of documents in a report, whatever the order in which they were read."""

from __future__ import annotations

from siteatlas.scanner.report import ReportOrder, SitemapSeen


def read(url: str, parent: str | None = None) -> SitemapSeen:
    return SitemapSeen(
        url=url,
        type="standard",
        discovery_method="robots_txt",
        status="completed",
        outcome="complete",
        url_count=0,
        error_code=None,
        error=None,
        http_status=200,
        parent=parent,
        wire_bytes=0,
        decoded_bytes=0,
        fetch_seconds=0.0,
    )


def sorted_urls(order: ReportOrder, *documents: SitemapSeen) -> list[str]:
    return [document.url for document in order.sort_documents(documents)]


def test_children_stand_below_their_index_in_its_order() -> None:
    order = ReportOrder()
    order.add_urls(["first", "second"])
    order.add_urls(["s1", "s2"])
    order.add_urls(["f1", "f2"])
    assert sorted_urls(
        order,
        read("f2", "first"),
        read("s2", "second"),
        read("second"),
        read("s1", "second"),
        read("f1", "first"),
        read("first"),
    ) == ["first", "f1", "f2", "second", "s1", "s2"]


def test_a_redirected_document_keeps_the_place_of_its_name() -> None:
    order = ReportOrder()
    order.add_urls(["a", "b"])
    order.add_redirect("a", "z")
    assert sorted_urls(order, read("b"), read("z")) == ["z", "b"]


def test_a_document_that_nobody_named_comes_last() -> None:
    order = ReportOrder()
    order.add_urls(["a"])
    assert sorted_urls(order, read("unknown"), read("a")) == ["a", "unknown"]


def test_indexes_that_name_each_other_are_listed_once_each() -> None:
    order = ReportOrder()
    order.add_urls(["a", "b"])
    assert sorted(sorted_urls(order, read("a", "b"), read("b", "a"))) == ["a", "b"]
