"""New URLs are written by COPY, or else by slower statements, which store the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.url_copy import UrlRows
from siteatlas.catalog.urls import insert_urls
from siteatlas.errors import DatabaseBusy, DatabaseUnavailable
from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.session import get_background_session, get_session, retry_when_busy
from tests.fixtures.database import transaction

pytestmark = pytest.mark.usefixtures("database")

FIELDS = (
    "url",
    "lastmod",
    "changefreq",
    "priority",
    "extras",
    "fingerprint",
    "lastmod_text",
)


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


BIGINTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40
)
ENTRIES = st.tuples(
    TEXTS.map(lambda text: f"https://example.com/{text}"),
    st.none() | st.integers(0, 250_000_000_000_000_000).map(moment),
    st.sampled_from([None, "daily", "never"]),
    st.none() | st.floats(0, 1, width=32),
    st.none() | TEXTS.map(lambda text: orjson.dumps({"images": [{"loc": text}]}).decode()),
    BIGINTS,
    st.none() | st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00")),
)


def some_rows(count: int, sitemap_id: UUID | None = None) -> UrlRows:
    rows = UrlRows(runs=[(sitemap_id or uuid4(), count)])
    for number in range(count):
        rows.url_hash.append(number)
        rows.url.append(f"https://example.com/{number}")
        rows.lastmod.append(datetime(2026, 1, 1, tzinfo=UTC))
        rows.changefreq.append(None)
        rows.priority.append(0.5)
        rows.extras.append(None)
        rows.fingerprint.append(7)
        rows.lastmod_text.append(None)
    return rows


async def stored(session: AsyncSession, rows: UrlRows) -> dict[int, tuple[Any, ...]]:
    columns = [getattr(SitemapUrl, name) for name in FIELDS]
    ids = {sitemap_id for sitemap_id, _ in rows.runs}
    statement = select(SitemapUrl.url_hash, *columns).where(SitemapUrl.sitemap_id.in_(ids))
    return {row[0]: tuple(row[1:]) for row in (await session.execute(statement)).all()}


async def write(rows: UrlRows) -> None:
    async with get_background_session() as session, session.begin():
        await insert_urls(session, rows)


async def write_cut_off(rows: UrlRows) -> None:
    async with get_background_session() as session, session.begin():
        pid = (await session.execute(select(func.pg_backend_pid()))).scalar_one()
        async with transaction() as other:
            await other.execute(select(func.pg_terminate_backend(pid)))
        await insert_urls(session, rows)


async def write_cut_off_in_the_middle(rows: UrlRows, after: float) -> None:
    async with get_background_session() as session, session.begin():
        pid = (await session.execute(select(func.pg_backend_pid()))).scalar_one()
        cutting = asyncio.create_task(cut_off(pid, after))
        try:
            await insert_urls(session, rows)
        finally:
            await cutting


async def cut_off(pid: int, after: float) -> None:
    await asyncio.sleep(after)
    async with transaction() as other:
        await other.execute(select(func.pg_terminate_backend(pid)))


async def write_impatiently(rows: UrlRows) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(select(func.set_config("lock_timeout", "200ms", True)))
        await insert_urls(session, rows)


async def number_of(rows: UrlRows) -> int:
    async with transaction() as session:
        return len(await stored(session, rows))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    entries=st.lists(ENTRIES, min_size=1, max_size=20, unique_by=lambda entry: entry[5]),
    several=st.booleans(),
)
async def test_the_fast_way_stores_the_same_as_the_careful_way(
    entries: list[tuple[Any, ...]], several: bool
) -> None:
    cut = len(entries) // 2 if several else 0
    found = []
    for contested in (False, True):
        rows = UrlRows(
            [(uuid4(), cut), (uuid4(), len(entries) - cut)],
            list(range(len(entries))),
            contested=contested,
        )
        for name, column in zip(FIELDS, zip(*entries, strict=True), strict=True):
            getattr(rows, name).extend(column)
        await write(rows)
        async with transaction() as session:
            found.append(await stored(session, rows))
            await session.execute(delete(SitemapUrl))
    assert found[0] == found[1]
    assert len(found[0]) == len(entries)


async def test_what_is_stored_is_exactly_what_was_listed() -> None:
    rows = UrlRows(
        [(uuid4(), 2)],
        [-(2**63), 5],
        ["https://example.com/ü?a=\\N&b=\t", "https://example.com/"],
        [datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None],
        ["weekly", None],
        [0.25, None],
        ['{"news": {"title": "Ein „Titel“"}}', None],
        [2**63 - 1, 0],
        [None, "gestern\n"],
    )
    await write(rows)
    async with transaction() as session:
        assert await stored(session, rows) == {
            -(2**63): (
                "https://example.com/ü?a=\\N&b=\t",
                datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                "weekly",
                0.25,
                {"news": {"title": "Ein „Titel“"}},
                2**63 - 1,
                None,
            ),
            5: ("https://example.com/", None, None, None, None, 0, "gestern\n"),
        }


async def test_rows_that_someone_else_stored_meanwhile_are_left_as_they_are() -> None:
    sitemap_id = uuid4()
    await write(some_rows(10, sitemap_id))
    rows = some_rows(30, sitemap_id)
    rows.fingerprint = [8] * 30
    tries = 0

    @retry_when_busy
    async def one_try() -> None:
        nonlocal tries
        tries += 1
        await write(rows)

    await one_try()
    assert tries == 2
    async with transaction() as session:
        prints = [
            row[FIELDS.index("fingerprint")]
            for _, row in sorted((await stored(session, rows)).items())
        ]
    assert prints == [7] * 10 + [8] * 20


async def test_a_conflict_alone_is_reported_as_busy_and_stores_nothing() -> None:
    sitemap_id = uuid4()
    await write(some_rows(1, sitemap_id))
    rows = some_rows(3, sitemap_id)
    with pytest.raises(DatabaseBusy):
        await write(rows)
    assert await number_of(rows) == 1


async def test_a_connection_that_is_cut_is_an_outage_and_the_next_one_works() -> None:
    rows = some_rows(3)
    with pytest.raises(DatabaseUnavailable):
        await write_cut_off(rows)
    await write(rows)
    assert await number_of(rows) == 3


async def test_waiting_for_another_transaction_ends_with_the_limit_of_the_session() -> None:
    sitemap_id = uuid4()
    async with get_background_session() as holder, holder.begin():
        await insert_urls(holder, some_rows(1, sitemap_id))
        with pytest.raises(DatabaseBusy):
            await write_impatiently(some_rows(2, sitemap_id))
    assert await number_of(some_rows(1, sitemap_id)) == 1


@pytest.mark.parametrize("after", [0.0, 0.02, 0.04, 0.06])
async def test_a_connection_that_is_cut_in_the_middle_of_the_rows_is_noticed_at_once(
    after: float,
) -> None:
    rows = some_rows(60_000)
    async with asyncio.timeout(10):
        with pytest.raises(DatabaseUnavailable):
            await write_cut_off_in_the_middle(rows, after)
    await write(some_rows(3))


async def test_a_writing_that_is_cancelled_leaves_nothing_and_the_next_one_works() -> None:
    rows = some_rows(60_000)
    task = asyncio.create_task(write(rows))
    await asyncio.sleep(0.05)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done
    assert task.cancelled()
    assert await number_of(rows) == 0
    await write(some_rows(3))


async def test_rows_belong_to_the_transaction_even_if_they_are_its_first_statement() -> None:
    rows = some_rows(3)
    async with get_session() as session:
        await insert_urls(session, rows)
        await session.rollback()
    assert await number_of(rows) == 0
