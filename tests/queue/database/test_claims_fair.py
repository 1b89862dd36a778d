"""Claims take turns between users, keep slots for people and pass over users with enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import insert

from siteatlas.queue.claims import MAX_DUE_USERS, claim
from siteatlas.storage.models import Job, User
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import LEASE, Priority

pytestmark = pytest.mark.usefixtures("database")


async def user_with(jobs: int, name: str, priority: Priority = Priority.BATCH) -> UUID:
    """A user who has submitted so many jobs."""
    user = uuid4()
    rows = [
        {
            "created_by": user,
            "dedup_key": f"{number}.{name}",
            "priority": int(priority),
            "result_data": {"domain": f"{number}.{name}"},
        }
        for number in range(jobs)
    ]
    async with get_background_session() as session, session.begin():
        await session.execute(insert(User), [{"id": user, "name": name}])
        await session.execute(insert(Job), rows)
    return user


async def owners(
    limit: int, *, background: int | None = None, full: tuple[UUID, ...] = ()
) -> list[UUID]:
    async with get_background_session() as session, session.begin():
        claims = await claim(
            session, "worker-a", limit, LEASE, background=background, users_at_limit=full
        )
    return [one.created_by for one in claims]


async def test_one_job_is_claimed_at_once_despite_5000_of_another_user():
    greedy = await user_with(5000, "greedy.example")
    modest = await user_with(1, "modest.example")
    assert set(await owners(2)) == {greedy, modest}


async def test_running_jobs_count_against_their_user():
    greedy = await user_with(40, "greedy.example")
    assert await owners(10) == [greedy] * 10
    modest = await user_with(20, "modest.example")
    assert await owners(10) == [modest] * 10
    assert sorted(await owners(4)) == sorted([greedy, greedy, modest, modest])


async def test_priority_comes_before_turns():
    await user_with(5, "batch.example")
    person = await user_with(3, "person.example", Priority.INTERACTIVE)
    assert await owners(3) == [person] * 3


async def test_batch_jobs_leave_the_reserved_slots_to_people():
    batch = await user_with(20, "batch.example")
    assert await owners(8, background=6) == [batch] * 6
    person = await user_with(4, "person.example", Priority.INTERACTIVE)
    assert await owners(8, background=0) == [person] * 4


async def test_interactive_jobs_use_up_the_places_of_batch_jobs_too():
    person = await user_with(4, "person.example", Priority.INTERACTIVE)
    batch = await user_with(20, "batch.example")
    assert await owners(8, background=6) == [person] * 4 + [batch] * 2


async def test_a_user_with_enough_slots_is_passed_over():
    full = await user_with(5, "full.example")
    other = await user_with(1, "other.example")
    assert await owners(4, full=(full,)) == [other]


async def users_with_a_job(users: int, **values: object) -> list[UUID]:
    """So many users with one job each."""
    ids = [uuid4() for _ in range(users)]
    jobs = [{"created_by": user, "dedup_key": f"{user}.example", **values} for user in ids]
    async with get_background_session() as session, session.begin():
        await session.execute(insert(User), [{"id": user, "name": str(user)} for user in ids])
        await session.execute(insert(Job), jobs)
    return ids


async def test_500_users_without_a_due_job_do_not_keep_another_waiting():
    await users_with_a_job(500, run_at=datetime.now(UTC) + timedelta(hours=1))
    modest = await user_with(1, "modest.example", Priority.SCHEDULED)
    assert await owners(4) == [modest]


async def test_users_without_a_due_job_do_not_count_among_those_who_take_turns():
    await users_with_a_job(MAX_DUE_USERS + 1, run_at=datetime.now(UTC) + timedelta(hours=1))
    modest = await user_with(1, "modest.example", Priority.SCHEDULED)
    assert await owners(4) == [modest]


async def test_500_users_with_enough_slots_do_not_keep_another_waiting():
    full = await users_with_a_job(500)
    modest = await user_with(1, "modest.example", Priority.SCHEDULED)
    assert await owners(4, full=tuple(full)) == [modest]
