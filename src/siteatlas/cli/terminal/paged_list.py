"""Lists that are read page by page and printed in the requested format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Signature, signature
from typing import Any, Generic, TypeVar
from uuid import UUID

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.paging import DEFAULT_LIMIT, MAX_LIMIT, Page
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    LimitOption,
    ListJsonOption,
)
from siteatlas.cli.terminal.output import (
    Column,
    ListFormat,
    print_message,
    write_csv,
    write_json,
    write_json_lines,
    write_table,
)
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What part of a list to print, and how; no limit means all of it."""

    format: ListFormat
    limit: int | None
    cursor: str | None


def with_list_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes a `request` the options that all lists have."""

    def listing(
        *args: object,
        limit: LimitOption = DEFAULT_LIMIT,
        cursor: CursorOption = None,
        everything: AllOption = False,
        format: FormatOption = ListFormat.TABLE,
        as_json: ListJsonOption = False,
        **others: object,
    ) -> None:
        chosen = ListFormat.JSON if as_json else format
        request = ListRequest(chosen, None if everything else limit, cursor)
        command(*args, **others, request=request)

    shared = signature(listing, eval_str=True).parameters.values()
    own = signature(command, eval_str=True).parameters.values()
    options = [one for one in shared if one.kind is one.KEYWORD_ONLY]
    parameters = [*(one for one in own if one.name != "request"), *options]
    listing.__name__, listing.__doc__ = command.__name__, command.__doc__
    listing.__annotations__ = {one.name: one.annotation for one in parameters}
    listing.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return listing


@dataclass(frozen=True, slots=True)
class TableLayout(Generic[Item]):
    """How the items of a list look in a table, and what to say when there are none.

    `record` is the view of an item, whose fields are the columns of CSV, unless these have an order
    of their own.
    """

    columns: Sequence[Column]
    none: str
    none_matches: str
    record: type[Item] | None = None
    csv: Sequence[str] = ()

    def filtered_by(self, *filters: object) -> TableLayout[Item]:
        """The table layout of a list command with these filters; None is no filter."""
        if all(chosen is None for chosen in filters):
            return self
        return replace(self, none=self.none_matches)


FetchPage = Callable[[int, str | None], Awaitable[Page[Item]]]


async def read_pages(
    fetch: FetchPage[Item], limit: int | None, cursor: str | None
) -> AsyncIterator[Page[Item]]:
    """Pages until `limit` items were read or the list ends; never more than `limit` items."""
    left = limit
    while True:
        page = await fetch(MAX_LIMIT if left is None else min(left, MAX_LIMIT), cursor)
        yield page
        cursor = page.next_cursor
        if left is not None:
            left -= len(page.items)
        if cursor is None or left == 0:
            return


async def print_list(
    settings: Settings,
    request: ListRequest,
    shape: TableLayout[Item],
    read: Callable[..., Awaitable[Page[Item]]],
    *,
    site: str | None = None,
    write: Callable[..., Awaitable[None]] | None = None,
) -> None:
    """Print the list of the catalog that `read` reads, a page per transaction; of a site, if any.

    `write` is for a form of its own.
    """
    async with opened(settings):
        ids: list[UUID] = []
        if site is not None:
            async with get_session() as session, session.begin():
                ids.append((await find_domain_view(session, site)).id)

        async def fetch(limit: int, cursor: str | None) -> Page[Item]:
            async with get_session() as session, session.begin():
                return await read(session, *ids, limit=limit, cursor=cursor)

        await (write or write_list)(request, fetch, shape)


async def write_list(
    request: ListRequest, fetch: FetchPage[Item], shape: TableLayout[Item]
) -> None:
    """Read and print a list; a message about what is left out goes to stderr."""
    pages = read_pages(fetch, request.limit, request.cursor)
    if request.format is ListFormat.JSON:
        await _write_object(pages)
        return
    write = _writer(request.format, shape)
    cursor, printed = None, 0
    async for page in pages:
        cursor = page.next_cursor
        printed += len(page.items)
        write(page.items)
    if not printed:
        print_message(shape.none)
    if cursor is not None:
        print_message(f"More items: use --all, or continue with --cursor {cursor}")


def _writer(form: ListFormat, shape: TableLayout[Item]) -> Callable[[Sequence[Item]], None]:
    if form is ListFormat.JSONL:
        return write_json_lines
    if form is ListFormat.CSV:
        return _CsvPages(shape)

    def write(items: Sequence[Item]) -> None:
        if items:
            rows = ([column.of(item) for column in shape.columns] for item in items)
            write_table(shape.columns, rows)

    return write


class _CsvPages(Generic[Item]):
    """Prints pages as CSV under one header line, even if the list is empty."""

    def __init__(self, shape: TableLayout[Item]) -> None:
        record: Any = shape.record
        self._names = shape.csv or [field.name for field in fields(record)]
        self._head = True

    def __call__(self, items: Sequence[Item]) -> None:
        rows = ([getattr(item, name) for name in self._names] for item in items)
        write_csv(self._names, rows, head=self._head)
        self._head = False


async def _write_object(pages: AsyncIterator[Page[Item]]) -> None:
    items: list[Item] = []
    cursor = examined = None
    async for page in pages:
        items.extend(page.items)
        cursor = page.next_cursor
        if (seen := getattr(page, "examined", None)) is not None:
            examined = (examined or 0) + seen
    answer: dict[str, object] = {"items": items, "next_cursor": cursor}
    write_json(answer if examined is None else answer | {"examined": examined})
