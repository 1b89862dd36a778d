"""Many scans that publish at once, with a pause between number and COMMIT, and one eager reader.

The broken copies that the tests must find out are here too: numbers from a sequence, and a reader
that asks for the events first and for the head of the feed afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.util import await_only

from siteatlas.storage.session import bound_database
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.database import transaction
from tests.fixtures.feed import FeedClient
from tests.fixtures.pipeline import settings_for, submit_server, work

PUBLISHERS = 20
ROUNDS = 4
LONGEST_PAUSE = 0.02
Position = tuple[set[str], int]
Reader = Callable[[int], Awaitable[Position]]

# A head of the feed that looks like ours and takes its numbers from a sequence.
SEQUENCE_IN_PLACE_OF_THE_ROW = (
    "CREATE SEQUENCE numbers",
    "SELECT setval('numbers', greatest(seq, 1), seq > 0) FROM feed_head",
    "ALTER TABLE feed_head RENAME TO feed_head_row",
    """CREATE VIEW feed_head AS SELECT id,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM numbers) AS seq,
       retained_from, feed_id FROM feed_head_row""",
    """CREATE FUNCTION take_number() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN NEW.seq := nextval('numbers'); RETURN NEW; END $$""",
    """CREATE TRIGGER numbered INSTEAD OF UPDATE ON feed_head
       FOR EACH ROW EXECUTE FUNCTION take_number()""",
)


async def number_with_a_sequence() -> None:
    """From now on publications of this database do not wait for each other."""
    async with bound_database().engine.begin() as connection:
        for statement in SEQUENCE_IN_PLACE_OF_THE_ROW:
            await connection.execute(text(statement))


@contextmanager
def pauses_before_commit(seed: int = 1504) -> Iterator[None]:
    """Each transaction that took a number waits a little before it commits."""
    chance = random.Random(seed)
    engine = bound_database().engine.sync_engine

    def stated(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "UPDATE feed_head" in statement:
            connection.info["numbered"] = True

    def committing(connection: Any) -> None:
        if connection.info.pop("numbered", False):
            await_only(asyncio.sleep(chance.uniform(0, LONGEST_PAUSE)))

    event.listen(engine, "before_cursor_execute", stated)
    event.listen(engine, "commit", committing)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", stated)
        event.remove(engine, "commit", committing)


async def publish_at_once(rounds: int = ROUNDS) -> None:
    """Scan twenty sites at the same time, again and again; each scan has one change to tell."""
    async with AsyncExitStack() as stack:
        new = (ChangingSite(robots=["/s.xml"]) for _ in range(PUBLISHERS))
        sites = [await stack.enter_async_context(site) for site in new]
        for number in range(rounds + 1):
            for site in sites:
                site.add("/s.xml", ["/page", f"/page{number}"])
                await submit_server(site)
            await work(settings_for(*sites), limit=PUBLISHERS)


async def follow(read: Reader, until: asyncio.Task[None]) -> set[str]:
    """The events that a client has seen that reads without a pause and never looks back."""
    seen: set[str] = set()
    position = 0
    while True:
        is_last = until.done()
        events, position = await read(position)
        seen |= events
        if is_last:
            return seen
        await asyncio.sleep(0)


def page_reader(client: FeedClient) -> Reader:
    """Reads one page of the feed."""

    async def read(after: int) -> Position:
        page = await client.page(after=after)
        return {event["id"] for event in page["items"]}, page["to_seq"]

    return read


def events_first_reader(client: FeedClient) -> Reader:
    """Reads the events, and only then how far the feed has come."""
    head = text("SELECT seq FROM feed_head")

    async def read(after: int) -> Position:
        events = {event["id"] for event in await client.events(after)}
        async with transaction() as session:
            return events, (await session.execute(head)).scalar_one()

    return read
