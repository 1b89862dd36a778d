"""An IP address at which many sites wait belongs to one worker; the others pass over its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from siteatlas.net.address import parse_site
from siteatlas.queue.claims import HOT_ADDRESS, claim, has_due_jobs
from siteatlas.queue.fence import WorkerReport, keep_addresses, sign_off_worker
from siteatlas.queue.retention import prune_workers
from siteatlas.queue.submission import BatchEntry, create_batch
from siteatlas.storage.models import LOCAL_USER_ID, AddressSlot, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import rows_of
from tests.fixtures.queue import LEASE, submit

pytestmark = pytest.mark.usefixtures("database")


async def waiting_at(address: str, count: int) -> None:
    """So many sites that answered at an address before wait."""
    for number in range(count):
        await submit(f"https://{number}.{address}.example")
    async with get_background_session() as session, session.begin():
        name = Domain.domain.endswith(f".{address}.example")
        await session.execute(update(Domain).where(name).values(address=address))
        await session.execute(
            update(Job).where(Job.dedup_key.endswith(f".{address}.example")).values(address=address)
        )


async def addresses_claimed(worker: str, limit: int = 4) -> Counter[str | None]:
    async with get_background_session() as session, session.begin():
        claims = await claim(session, worker, limit, LEASE)
    return Counter(one.address for one in claims)


async def holders() -> dict[str, str]:
    return {row.address: row.worker for row in await rows_of(AddressSlot)}


async def expire() -> None:
    async with get_background_session() as session, session.begin():
        past = func.now() - timedelta(seconds=1)
        await session.execute(update(AddressSlot).values(until=past))


async def test_the_sites_at_a_hot_address_are_claimed_by_one_worker():
    await waiting_at("a", HOT_ADDRESS + 8)
    assert await addresses_claimed("one") == {"a": 4}
    assert await addresses_claimed("two") == {}
    assert await addresses_claimed("one") == {"a": 4}
    assert await holders() == {"a": "one"}


async def test_other_jobs_are_claimed_behind_those_of_an_address_of_another_worker():
    await waiting_at("a", 200)
    await waiting_at("b", 2)
    await submit("https://new.example")
    assert await addresses_claimed("one") == {"a": 4}
    assert await addresses_claimed("two") == {"b": 2, None: 1}


async def test_an_address_at_which_few_sites_wait_belongs_to_nobody():
    await waiting_at("a", HOT_ADDRESS - 1)
    assert await addresses_claimed("one") == {"a": 4}
    assert await addresses_claimed("two") == {"a": 3}
    assert await holders() == {}


async def test_a_worker_takes_only_addresses_of_which_it_claims_jobs():
    await waiting_at("a", HOT_ADDRESS)
    await waiting_at("b", HOT_ADDRESS)
    assert await addresses_claimed("one") == {"a": 4}
    assert await addresses_claimed("two") == {"b": 4}
    assert await holders() == {"a": "one", "b": "two"}


async def test_the_address_of_a_killed_worker_is_free_when_its_lease_expires():
    await waiting_at("a", HOT_ADDRESS + 8)
    await addresses_claimed("one")
    await expire()
    assert await addresses_claimed("two") == {"a": 4}
    assert await holders() == {"a": "two"}
    assert await addresses_claimed("one") == {}


async def test_the_heartbeat_keeps_only_addresses_of_this_worker_at_which_its_jobs_run():
    await waiting_at("a", HOT_ADDRESS)
    await waiting_at("b", HOT_ADDRESS)
    await addresses_claimed("one", limit=2 * HOT_ADDRESS)
    await expire()
    async with get_background_session() as session, session.begin():
        await keep_addresses(session, "two", ["a"], LEASE)
        await keep_addresses(session, "one", ["b"], LEASE)
        statement = select(AddressSlot.address).where(AddressSlot.until > func.now())
        assert (await session.scalars(statement)).all() == ["b"]
        await prune_workers(session)
    assert await holders() == {"b": "one"}


async def test_a_worker_that_shuts_down_leaves_its_addresses_to_others():
    await waiting_at("a", HOT_ADDRESS + 8)
    await addresses_claimed("one")
    async with get_background_session() as session, session.begin():
        await sign_off_worker(session, WorkerReport("one", "host", 1, "1", 4, 0))
    assert await addresses_claimed("two") == {"a": 4}


async def test_jobs_at_the_address_of_another_worker_are_not_due():
    await waiting_at("a", HOT_ADDRESS + 8)
    await addresses_claimed("one")
    async with get_background_session() as session, session.begin():
        assert await has_due_jobs(session, "one")
        assert not await has_due_jobs(session, "two")


async def test_a_job_names_the_address_at_which_its_site_answered_last():
    async def addresses_of_jobs() -> Sequence[str | None]:
        async with get_background_session() as session, session.begin():
            return (await session.scalars(select(Job.address).order_by(Job.id))).all()

    for name in ("a", "b"):
        await submit(f"https://{name}.example")
    assert await addresses_of_jobs() == [None, None]
    async with get_background_session() as session, session.begin():
        await session.execute(update(Domain).values(address=Domain.domain))
        await session.execute(update(Job).values(status="failed", dedup_key=None))
    await submit("https://a.example")
    async with get_background_session() as session, session.begin():
        entry = BatchEntry("b.example", parse_site("https://b.example"))
        await create_batch(session, [entry], created_by=LOCAL_USER_ID, max_pages=None)
    assert await addresses_of_jobs() == [None, None, "a.example", "b.example"]
