"""What pages share: the services that `main` passes, and read sessions."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import parse_qs

from fastapi import Depends, Query, Request
from fastapi.responses import StreamingResponse

from siteatlas.access.keys import Installation
from siteatlas.catalog.findings import FindingTotal
from siteatlas.catalog.newest_changes import ChangesOverTime
from siteatlas.catalog.paging import MAX_LIMIT, Page
from siteatlas.errors import ConflictError, InputError, NotFoundError, NotOwner, TooManyTags
from siteatlas.export.encoding import CsvEncoder, ExportColumn, ExportFormat, Kind, encoded
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.metrics import DatabaseState, QueueLoad
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_session
from siteatlas.text import parse_tags

ItemT = TypeVar("ItemT")


async def apply_to_each(
    items: Iterable[ItemT], action: Callable[[ItemT], Awaitable[object]]
) -> int:
    """Apply an action to the items one by one; return how many it changed.

    An item that is gone, belongs to another user, is in another state or would have too many tags
    is left alone.
    """
    changed = 0
    for item in items:
        try:
            await action(item)
        except (ConflictError, NotFoundError, NotOwner, TooManyTags):
            continue
        changed += 1
    return changed


MAX_FIELDS = 1_000


class Form:
    """The values of a form by name."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def value(self, name: str) -> str:
        """The value of a field without surrounding blanks; empty if it is absent."""
        return self._values.get(name, [""])[-1].strip()

    def many(self, name: str) -> list[str]:
        """All values of a field that can be given several times."""
        return [value.strip() for value in self._values.get(name, []) if value.strip()]

    def number(self, name: str, what: str, *, least: float, most: float) -> float | None:
        """A number within these bounds; None for an empty field. `what` names it in the error."""
        text = self.value(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise InputError(f"{what} must be a number from {least:,} to {most:,}.")
        return value

    def whole_number(self, name: str, what: str, *, most: int) -> int | None:
        """A whole number above zero; None for an empty field."""
        value = self.number(name, what, least=1, most=most)
        if value is not None and not value.is_integer():
            raise InputError(f"{what} must be a whole number.")
        return None if value is None else int(value)

    def tags(self) -> list[str]:
        """The tags of the field `tags`, which blanks or commas separate."""
        return parse_tags(self.value("tags").replace(",", " ").split())

    def is_checked(self, name: str) -> bool:
        """Whether a checkbox is checked."""
        return name in self._values


async def read_form(request: Request) -> Form:
    """The submitted form; the body is limited like that of every request."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return Form(parse_qs(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise InputError(f"A form can have at most {MAX_FIELDS:,} fields.") from error


def csv_file(
    name: str, fields: str, read: Callable[..., Awaitable[Page[Any]]]
) -> StreamingResponse:
    """A whole list as a file with these fields; each page is read in a session of its own."""

    async def pages() -> AsyncIterator[Sequence[Any]]:
        cursor: str | None = ""
        while cursor is not None:
            async with get_session() as session, session.begin():
                page = await read(session, limit=MAX_LIMIT, cursor=cursor or None)
            cursor = page.next_cursor
            yield page.items

    encoder = CsvEncoder([ExportColumn(one, Kind.TEXT, attrgetter(one)) for one in fields.split()])
    headers = {"Content-Disposition": f'attachment; filename="{name.replace(":", "-")}.csv"'}
    media_type = ExportFormat.CSV.media_type
    return StreamingResponse(encoded(encoder, pages()), headers=headers, media_type=media_type)


AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Probe(Protocol[AnswerT_co]):
    """A check of the database that answers in time.

    It uses a connection of its own, so a page runs it before the first statement of its session. A
    request that waits for a second connection while it holds one can block all others.
    """

    async def run(self) -> AnswerT_co:
        """The result; DatabaseTimeout if it takes too long."""


class Services(Protocol):
    """What pages need of the process that serves them; `main` passes the context of the API."""

    settings: Settings
    policy: EgressPolicy
    installation: Installation
    changes_over_time: ChangesOverTime

    @property
    def database_state(self) -> Probe[DatabaseState]:
        """Version, schema and speed of the database."""

    @property
    def queue_load(self) -> Probe[QueueLoad]:
        """Jobs by status, living workers, overdue domains."""

    @property
    def finding_totals(self) -> Probe[list[FindingTotal]]:
        """What is wrong in all sites, by rule, at most a minute old."""

    def wake_consumer(self) -> None:
        """Wake the consumer of this process after a job was committed."""

    def notify_scheduler(self) -> None:
        """Notify the scheduler of this process that a site or webhook may be due earlier."""


async def _services(request: Request) -> Services:
    services: Services = request.app.state.web
    return services


async def _read_session() -> AsyncIterator[AsyncSession]:
    async with get_session() as session, session.begin():
        yield session


# PostgreSQL stores no NUL in text.
NO_NUL = r"^[^\x00]*$"
Cursor = Annotated[str | None, Query(max_length=2048)]
Context = Annotated[Services, Depends(_services)]
ReadSession = Annotated[AsyncSession, Depends(_read_session, scope="function")]
