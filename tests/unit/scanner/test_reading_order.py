"""The order of documents in a report, whatever the order in which they were read."""

from __future__ import annotations

from dataclasses import dataclass

from siteatlas.scanner.reading_order import ReadingOrder


@dataclass(frozen=True)
class Read:
    url: str
    parent: str | None = None


def arranged(order: ReadingOrder, *documents: Read) -> list[str]:
    return [document.url for document in order.arranged(documents)]


def test_children_stand_below_their_index_in_its_order() -> None:
    order = ReadingOrder()
    order.name(["first", "second"])
    order.name(["s1", "s2"])
    order.name(["f1", "f2"])
    assert arranged(
        order,
        Read("f2", "first"),
        Read("s2", "second"),
        Read("second"),
        Read("s1", "second"),
        Read("f1", "first"),
        Read("first"),
    ) == ["first", "f1", "f2", "second", "s1", "s2"]


def test_a_redirected_document_keeps_the_place_of_its_name() -> None:
    order = ReadingOrder()
    order.name(["a", "b"])
    order.redirect("a", "z")
    assert arranged(order, Read("b"), Read("z")) == ["z", "b"]


def test_a_document_that_nobody_named_comes_last() -> None:
    order = ReadingOrder()
    order.name(["a"])
    assert arranged(order, Read("unknown"), Read("a")) == ["a", "unknown"]


def test_indexes_that_name_each_other_are_listed_once_each() -> None:
    order = ReadingOrder()
    order.name(["a", "b"])
    assert sorted(arranged(order, Read("a", "b"), Read("b", "a"))) == ["a", "b"]
