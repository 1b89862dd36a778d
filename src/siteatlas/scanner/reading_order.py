"""The order in which a report lists documents: as they were named, not as they were read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar


class Placed(Protocol):
    """A document and the one that named it."""

    @property
    def url(self) -> str: ...

    @property
    def parent(self) -> str | None: ...


PlacedT = TypeVar("PlacedT", bound=Placed)


class ReadingOrder:
    """Remembers the place of every address that robots.txt, an index or a guess brought up."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def name(self, urls: Iterable[str]) -> None:
        """These were named, in this order; who was named before keeps his place."""
        for url in urls:
            self._places.setdefault(url, len(self._places))

    def redirect(self, asked: str, answered: str) -> None:
        """A document came from another address than the named one and takes over its place."""
        self.name([asked])
        self._places.setdefault(answered, self._places[asked])

    def arranged(self, documents: Sequence[PlacedT]) -> list[PlacedT]:
        """Every index before its children, and the children in the order of the index."""
        parents = {document.url: document.parent for document in documents}
        return sorted(documents, key=lambda document: self._path(document.url, parents))

    def _path(self, url: str | None, parents: Mapping[str, str | None]) -> list[int]:
        """The places from the root down; indexes that name each other end at the second time."""
        path: dict[str, int] = {}
        while url is not None and url in parents and url not in path:
            path[url] = self._places.get(url, len(self._places))
            url = parents[url]
        return list(path.values())[::-1]
