"""`siteatlas changes`: what was added, changed and removed, from the stored change feed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any

import typer

from siteatlas.catalog.change_feed import (
    ChangeView,
    FeedFilter,
    FeedPage,
    last_number_before,
    list_changes,
    read_head,
)
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.newest_changes import latest_changes
from siteatlas.catalog.paging import DEFAULT_LIMIT, MAX_LIMIT
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened, warn_without_worker
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.filters import (
    MOMENT_FORMS,
    KindsOption,
    parse_kinds,
    parse_time,
    require_reached,
    typed_moment,
)
from siteatlas.cli.terminal.lines import ChangeLines, StyledLine
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    LimitOption,
    OptionalSiteArgument,
    TagFilterOption,
    refuse_site_with_tag,
)
from siteatlas.cli.terminal.output import (
    is_terminal,
    print_message,
    write_csv,
    write_json_lines,
    write_line,
)
from siteatlas.cli.terminal.tables import draw_line, terminal_width
from siteatlas.errors import DatabaseError, InputError
from siteatlas.export.encoding import SHORT_CHANGES, ChangeColumns
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session
from siteatlas.text import printable

FOLLOW_SECONDS = 1.0
OUTAGE_SECONDS = 5.0
USUAL_SINCE = "7d"
NO_CHANGES = "There are no such changes."
INCOMPLETE = "Not all changes could be read: some may be missing. Use --all or --since WHEN"
FIELDS = [field.name for field in fields(ChangeView)]


class ChangeFormat(StrEnum):
    """The forms of the change feed."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Which part of the feed to print; no limit means all of it."""

    site: str | None
    kinds: frozenset[str] | None
    since: datetime | int | None
    cursor: str | None
    limit: int | None
    follow: bool
    tag: str | None = None


app = typer.Typer(rich_markup_mode=None)


@app.command()
def changes(
    site: OptionalSiteArgument = None,
    *,
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="WHEN",
            parser=typed_moment,
            help=f"Only changes since: {MOMENT_FORMS}. Default: the newest changes; with --follow "
            f"now; with --format csv or jsonl {USUAL_SINCE}.",
        ),
    ] = None,
    kinds: KindsOption = None,
    tag: TagFilterOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further changes and print them.")
    ] = False,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: Annotated[ChangeFormat, typer.Option(help="Output format.")] = ChangeFormat.TABLE,
    columns: Annotated[
        ChangeColumns, typer.Option(help="With --format csv: the columns.")
    ] = ChangeColumns.SHORT,
) -> None:
    """Print what was added (+), removed (-), changed (~) and moved (>), grouped by scan.

    Without --since, the newest changes are printed, the latest one last.
    Example: siteatlas changes example.com --since 2d --kinds added,removed
    """
    refuse_site_with_tag(site, tag)
    if since is not None and cursor is not None:
        raise InputError("Use either --since or --cursor, not both.")
    no_start = since is None and cursor is None and not follow
    newest = no_start and not everything and format is ChangeFormat.TABLE
    if no_start and not newest and not everything:
        since = parse_time(USUAL_SINCE, datetime.now(UTC))
    request = FeedRequest(
        site=site,
        kinds=parse_kinds(kinds),
        since=since,
        cursor=cursor,
        limit=None if everything or follow else limit,
        follow=follow,
        tag=tag,
    )
    printing = _print_newest if newest else _print_feed
    run(printing(prepare(), request, _feed_writer(format, columns, follow=follow)))


async def _print_newest(
    settings: Settings, request: FeedRequest, write: Callable[[Sequence[ChangeView]], None]
) -> None:
    assert request.limit is not None
    size = min(request.limit, MAX_LIMIT)
    async with opened(settings):
        wanted = await _feed_filter(request)
        async with get_session(snapshot=True) as session:
            latest = await latest_changes(session, wanted, await read_head(session), size + 1)
    newest = [published.event for published in latest.events[:size]]
    write(sorted(newest, key=lambda event: event.seq))
    if not latest.is_complete:
        print_message(INCOMPLETE)
    elif not newest:
        print_message(NO_CHANGES)
    elif len(latest.events) > size:
        print_message(f"These are the newest {size:,} changes. Older ones: --all or --since WHEN")


async def _print_feed(
    settings: Settings, request: FeedRequest, write: Callable[[Sequence[ChangeView]], None]
) -> None:
    printed, page = 0, None
    async with opened(settings):
        async for page in _feed_pages(request):
            write(page.items)
            printed += len(page.items)
    if page is None:
        return
    if not printed:
        print_message(NO_CHANGES)
    if not page.at_head:
        print_message(f"More changes: use --all, or continue with --cursor {page.next_cursor}")


async def _feed_pages(request: FeedRequest) -> AsyncIterator[FeedPage]:
    """Pages of the feed until the limit or the head; with `follow`, and those that come later."""
    wanted, after = await _find_start(request)
    if request.follow:
        await _announce_following(after)
    cursor, left = request.cursor, request.limit
    while True:
        size = MAX_LIMIT if left is None else min(left, MAX_LIMIT)
        page = await _read_page(wanted, after, cursor, size)
        yield page
        after, cursor = None, page.next_cursor
        left = None if left is None else left - len(page.items)
        if page.at_head and request.follow:
            await _next_publication(page.to_seq)
        elif page.at_head or left == 0:
            return


async def _announce_following(after: int | None) -> None:
    """Say that `siteatlas changes --follow` waits, and if nothing will come without a worker."""
    place = "" if after is None else f" after sequence number {after}"
    print_message(f"Following changes{place}. Press Ctrl-C to stop.")
    await warn_without_worker()


async def _find_start(request: FeedRequest) -> tuple[FeedFilter, int | None]:
    wanted = await _feed_filter(request)
    async with get_session(snapshot=True) as session:
        await require_reached(session, request.since)
        if request.cursor is not None:
            return wanted, None
        if isinstance(request.since, int):
            return wanted, request.since
        head = await read_head(session)
        if request.since is None:
            return wanted, head.seq if request.follow else head.retained_from
        return wanted, await last_number_before(
            session, request.since, after=head.retained_from, domain_id=wanted.domain_id
        )


async def _feed_filter(request: FeedRequest) -> FeedFilter:
    if request.site is None:
        return FeedFilter(None, request.kinds, request.tag)
    async with get_session() as session, session.begin():
        domain = await find_domain_view(session, request.site)
    return FeedFilter(domain.id, request.kinds, request.tag)


async def _read_page(
    wanted: FeedFilter, after: int | None, cursor: str | None, limit: int
) -> FeedPage:
    async with get_session(snapshot=True) as session:
        return await list_changes(session, wanted, after=after, cursor=cursor, limit=limit)


async def _next_publication(seq: int) -> None:
    """Wait until the feed has a number after `seq`; an outage of the database is waited for."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            async with get_session() as session, session.begin():
                if (await read_head(session)).seq > seq:
                    return
        except DatabaseError as error:
            print_message(f"Waiting for the database: {error.message}")
            await asyncio.sleep(OUTAGE_SECONDS)


def _feed_writer(
    format: ChangeFormat, columns: ChangeColumns, *, follow: bool
) -> Callable[[Sequence[ChangeView]], None]:
    match format:
        case ChangeFormat.JSONL:
            return write_json_lines
        case ChangeFormat.CSV:
            return _CsvEvents(columns).write
        case ChangeFormat.TABLE:
            return _GroupedEvents(follow=follow).write


class _CsvEvents:
    """Prints events as CSV under one header line."""

    def __init__(self, columns: ChangeColumns) -> None:
        self._columns: dict[str, Callable[[Any], Any]] = {name: attrgetter(name) for name in FIELDS}
        if columns is ChangeColumns.SHORT:
            self._columns = {column.name: column.value for column in SHORT_CHANGES.flat}
        self._head = True

    def write(self, events: Sequence[ChangeView]) -> None:
        """Print the events of one page of the feed as CSV."""
        rows = ([value(event) for value in self._columns.values()] for event in events)
        write_csv([*self._columns], rows, head=self._head)
        self._head = False


class _GroupedEvents:
    """Prints events below the heading of their scan, in colour on a terminal."""

    def __init__(self, *, follow: bool) -> None:
        self._lines = ChangeLines(terminal_width(sys.stdout), clock=follow)

    def write(self, events: Sequence[ChangeView]) -> None:
        """Print the events of one page of the feed for people."""
        for event in events:
            for line in self._lines.of(event):
                _write_styled_line(line)


def _write_styled_line(line: StyledLine) -> None:
    """Write a line of the feed on stdout; a colour applies on a terminal."""
    if line.style and is_terminal(sys.stdout):
        draw_line(sys.stdout, printable(line.text), line.style)
    else:
        write_line(line.text)
