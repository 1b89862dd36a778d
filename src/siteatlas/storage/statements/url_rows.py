"""New and changed URLs on their way into `sitemap_urls`, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

LINE_BREAK = "\n"
KEYS_PER_STATEMENT = 10_000
# About the memory of a row without its extras.
ROW_SIZE = 400
EARLIEST = datetime.min.replace(tzinfo=UTC)
POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# The date of an entry without one: before all others.
NO_DATE = -(1 << 63)
NO_DIGEST = 0


def date_numbers(lastmods: Iterable[datetime | None]) -> list[int]:
    """Dates as PostgreSQL stores them: microseconds since 2000."""
    return [
        NO_DATE if moment is None else (moment - POSTGRES_EPOCH) // MICROSECOND
        for moment in lastmods
    ]


class UrlRow(NamedTuple):
    """One row of `sitemap_urls`; `extras` is a JSON text, `entry_digest` is 0 if there is none."""

    url_hash: int
    url: str
    lastmod: datetime | None
    changefreq: str | None
    priority: float | None
    extras: str | None
    fingerprint: int
    lastmod_text: str | None
    entry_digest: int

    @property
    def order(self) -> tuple[datetime, int]:
        """Of several listings of a URL, the greatest counts: that with the latest date."""
        return self.lastmod or EARLIEST, self.fingerprint


class UrlColumns(NamedTuple):
    """Rows of one document, column by column, with the columns of `UrlRow`.

    `dates` are the numbers of `lastmod`.
    """

    url_hash: list[int]
    url: list[str]
    lastmod: list[datetime | None]
    changefreq: list[str | None]
    priority: list[float | None]
    extras: list[str | None]
    fingerprint: list[int]
    lastmod_text: list[str | None]
    entry_digest: list[int]
    dates: list[int]

    @classmethod
    def of_rows(cls, rows: Iterable[UrlRow]) -> UrlColumns:
        """These rows as columns."""
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        columns = columns or [[] for _ in UrlRow._fields]
        columns.append(date_numbers(columns[UrlRow._fields.index("lastmod")]))
        return cls(*columns)

    def at(self, indexes: Sequence[int]) -> UrlColumns:
        """The rows at these indexes."""
        columns: list[Any] = [[column[index] for index in indexes] for column in self]
        return UrlColumns(*columns)

    def row(self, index: int) -> UrlRow:
        """The row at an index."""
        values: list[Any] = [column[index] for column in self[:-1]]
        return UrlRow(*values)


@dataclass(slots=True)
class UrlRows:
    """Rows of `sitemap_urls`, column by column. `extras` are JSON texts.

    `runs` says how many rows in a row belong to which document; `size` is about the memory, in
    bytes, that all of it takes. `contested` rows may be stored already.
    """

    runs: list[tuple[UUID, int]] = field(default_factory=list)
    url_hash: list[int] = field(default_factory=list)
    url: list[str] = field(default_factory=list)
    lastmod: list[datetime | None] = field(default_factory=list)
    changefreq: list[str | None] = field(default_factory=list)
    priority: list[float | None] = field(default_factory=list)
    extras: list[str | None] = field(default_factory=list)
    fingerprint: list[int] = field(default_factory=list)
    lastmod_text: list[str | None] = field(default_factory=list)
    entry_digest: list[int] = field(default_factory=list)
    dates: list[int] = field(default_factory=list)
    size: int = 0
    contested: bool = False

    def __len__(self) -> int:
        return len(self.url_hash)

    def append(self, sitemap_id: UUID, columns: UrlColumns) -> None:
        """Add rows of one document."""
        count = len(columns.url_hash)
        if not count:
            return
        self.runs.append((sitemap_id, count))
        self.size += count * ROW_SIZE
        if columns.extras.count(None) < count:
            self.size += sum(len(extra) for extra in columns.extras if extra)
        for name, values in zip(columns._fields, columns, strict=True):
            getattr(self, name).extend(values)

    def sitemap_ids(self) -> list[UUID]:
        """The documents of the rows, each once."""
        return list(dict.fromkeys(sitemap_id for sitemap_id, _ in self.runs))

    def parameters(self) -> dict[str, Any]:
        """The columns as parameters of a statement."""
        sitemap_ids = self.sitemap_ids()
        place = {sitemap_id: str(n) for n, sitemap_id in enumerate(sitemap_ids, start=1)}
        places = [place[sitemap_id] for sitemap_id, count in self.runs for _ in range(count)]
        return {
            "p_sitemap_ids": sitemap_ids,
            "p_place": LINE_BREAK.join(places),
            "p_url_hash": self.url_hash,
            "p_url": LINE_BREAK.join(self.url),
            "p_lastmod": self.lastmod,
            "p_changefreq": _join_column(self.changefreq),
            "p_priority": _join_column(None if p is None else str(p) for p in self.priority),
            "p_extras": _join_column(self.extras),
            "p_fingerprint": self.fingerprint,
            "p_lastmod_text": self.lastmod_text,
            "p_entry_digest": self.entry_digest,
        }


@dataclass(slots=True)
class UrlKeys:
    """Keys of stored rows of `sitemap_urls`, by document."""

    runs: list[tuple[UUID, Sequence[int]]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(hashes) for _, hashes in self.runs)

    def append(self, sitemap_id: UUID, hashes: Sequence[int]) -> None:
        """Add rows of one document."""
        if hashes:
            self.runs.append((sitemap_id, hashes))

    def parts(self) -> Iterator[UrlKeys]:
        """The keys in parts, each for one statement."""
        part, left = UrlKeys(), KEYS_PER_STATEMENT
        for sitemap_id, hashes in self.runs:
            first = 0
            while first < len(hashes):
                some = hashes[first : first + left]
                part.append(sitemap_id, some)
                first += len(some)
                left -= len(some)
                if not left:
                    yield part
                    part, left = UrlKeys(), KEYS_PER_STATEMENT
        if part.runs:
            yield part

    def parameters(self) -> dict[str, Any]:
        """The keys as parameters of a statement."""
        sitemap_ids = list(dict.fromkeys(sitemap_id for sitemap_id, _ in self.runs))
        place = {sitemap_id: n for n, sitemap_id in enumerate(sitemap_ids, start=1)}
        return {
            "p_sitemap_ids": sitemap_ids,
            "p_place": [place[one] for one, hashes in self.runs for _ in hashes],
            "p_url_hash": [key for _, hashes in self.runs for key in hashes],
        }


def _join_column(values: Iterable[str | None]) -> str:
    """A text column of `sitemap_urls` as one statement parameter; an empty line means NULL."""
    return LINE_BREAK.join([value or "" for value in values])
