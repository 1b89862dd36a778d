"""Claiming and rescuing: each job has one holder, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from siteatlas.errors import LeaseLost
from siteatlas.queue.claims import DEATHS_BEFORE_ALONE
from siteatlas.queue.completion import release
from siteatlas.queue.fence import Claim, WorkerReport, heartbeat, report_progress, report_worker
from siteatlas.queue.rescues import (
    MAX_DEATHS,
    MAX_RESCUES,
    POISON_RESCUES,
    clear_deaths,
    forgive_rescues,
    mark_alone,
    release_orphans,
    rescue,
)
from siteatlas.storage.models import JobAttempt, Worker
from siteatlas.storage.session import get_background_session
from tests.fixtures.queue import (
    LEASE,
    Priority,
    begin,
    change,
    job_of,
    let_lease_expire,
    rescue_all,
    submit,
    take,
    take_one,
    take_suspect,
)

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.criterion("status-life", "scheduler-sets-no-status", "status-own-session")
async def test_a_claim_sets_processing_fence_attempt_and_lease() -> None:
    submitted = await submit("example.com", max_pages=7)
    claim = await take_one("worker-a")
    job = await job_of(submitted.id)
    assert (job.status, job.fence, job.attempt, job.worker_id) == ("processing", 1, 1, "worker-a")
    assert job.lease_until is not None
    assert (claim.domain, claim.max_pages, claim.fence) == ("example.com", 7, 1)


@pytest.mark.criterion("pending-query")
async def test_jobs_are_claimed_by_priority_then_age() -> None:
    await submit("scheduled.example.com", priority=Priority.SCHEDULED)
    await submit("batch.example.com", priority=Priority.BATCH)
    await submit("first.example.com")
    await submit("second.example.com")
    assert [claim.domain for claim in await take(4)] == [
        "first.example.com",
        "second.example.com",
        "batch.example.com",
        "scheduled.example.com",
    ]


@pytest.mark.criterion("pending-query")
async def test_a_job_whose_time_has_not_come_is_left_alone() -> None:
    submitted = await submit("example.com")
    await change(submitted.id, run_at=func.now() + timedelta(minutes=5))
    assert await take(10) == []


@pytest.mark.criterion("scalable")
async def test_parallel_claims_never_take_the_same_job() -> None:
    for number in range(40):
        await submit(f"site-{number}.example.com")
    taken = await asyncio.gather(*(take(4, f"worker-{n}") for n in range(20)))
    ids = [claim.id for claims in taken for claim in claims]
    assert len(ids) == len(set(ids)) == 40


async def test_a_living_lease_is_not_rescued() -> None:
    await submit("example.com")
    await take_one()
    assert await rescue_all() == []


@pytest.mark.criterion("scheduler-sets-no-status", "failures-isolated", "recovery")
async def test_an_expired_lease_is_rescued_at_once_and_the_attempt_refunded() -> None:
    submitted = await submit("example.com")
    await begin(await take_one())
    await let_lease_expire(submitted.id)
    await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.attempt, job.fence, job.rescues) == ("pending", 0, 1, 1)
    assert (await take_one("worker-b")).fence == 2


async def die(job_id: int, take: Callable[[], Awaitable[Claim]]) -> None:
    """Let a worker take the job, begin it and die with it."""
    await change(job_id, run_at=func.now())
    await begin(await take())
    await let_lease_expire(job_id)
    await rescue_all()


async def take_isolated() -> Claim:
    """Claim the one suspect, and let the other jobs of the worker end."""
    claim = await take_suspect()
    async with get_background_session() as session, session.begin():
        await mark_alone(session, claim)
    return claim


async def beat(claim: Claim) -> None:
    """Renew the lease of a job that has not begun."""
    async with get_background_session() as session, session.begin():
        await heartbeat(session, [claim], LEASE)


async def codes_of_attempts(job_id: int) -> list[str | None]:
    codes = select(JobAttempt.error_code).where(JobAttempt.job_id == job_id)
    async with get_background_session() as session, session.begin():
        return list((await session.scalars(codes.order_by(JobAttempt.fence))).all())


@pytest.mark.criterion("scheduler-sets-no-status", "failures-isolated")
async def test_the_third_death_without_a_finished_document_is_poison() -> None:
    submitted = await submit("example.com")
    await die(submitted.id, take_one)
    await die(submitted.id, take_one)
    await die(submitted.id, take_isolated)
    job = await job_of(submitted.id)
    assert (job.status, job.error_code) == ("failed", "poison")


async def test_a_third_death_while_other_jobs_run_does_not_fail_the_job() -> None:
    submitted = await submit("example.com")
    await die(submitted.id, take_one)
    await die(submitted.id, take_one)
    await die(submitted.id, take_suspect)
    job = await job_of(submitted.id)
    assert (job.status, job.rescues) == ("pending", 3)


async def test_a_job_that_had_not_begun_is_not_blamed_for_the_death_of_its_worker() -> None:
    submitted = await submit("example.com")
    for _ in range(POISON_RESCUES):
        claim = await take_one()
        await beat(claim)
        await let_lease_expire(submitted.id)
        await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.rescues, job.attempt) == ("pending", 0, 0)
    assert await codes_of_attempts(submitted.id) == ["lease_lost"] * POISON_RESCUES


async def test_a_suspect_that_survived_alone_is_claimed_like_any_other_job() -> None:
    submitted = await submit("example.com")
    await change(submitted.id, rescues=2)
    claim = await take_isolated()
    async with get_background_session() as session, session.begin():
        await clear_deaths(session, claim)
        await release(session, claim)
    job = await job_of(submitted.id)
    assert (job.rescues, job.alone) == (0, False)
    assert not (await take_one()).alone


async def test_a_worker_that_lost_its_claim_neither_isolates_nor_clears_the_job() -> None:
    submitted = await submit("example.com")
    await change(submitted.id, rescues=2)
    overtaken = await take_suspect("worker-a")
    await let_lease_expire(submitted.id)
    await rescue_all()
    await change(submitted.id, run_at=func.now())
    holder = await take_isolated()
    async with get_background_session() as session, session.begin():
        with pytest.raises(LeaseLost):
            await mark_alone(session, overtaken)
        await clear_deaths(session, overtaken)
    job = await job_of(submitted.id)
    assert (job.fence, job.rescues, job.alone) == (holder.fence, 2, True)


async def test_after_two_deaths_a_job_is_not_claimed_with_others() -> None:
    suspect = await submit("suspect.example.com")
    await die(suspect.id, take_one)
    await die(suspect.id, take_one)
    await change(suspect.id, run_at=func.now())
    await submit("innocent.example.com")
    assert [claim.domain for claim in await take(10)] == ["innocent.example.com"]
    claim = await take_suspect()
    assert (claim.id, claim.alone) == (suspect.id, True)
    assert not (await job_of(suspect.id)).alone


async def test_a_job_that_never_ran_alone_is_poison_after_six_deaths() -> None:
    submitted = await submit("example.com")
    for deaths in range(1, MAX_RESCUES):
        await die(submitted.id, take_one if deaths <= DEATHS_BEFORE_ALONE else take_suspect)
        job = await job_of(submitted.id)
        assert (job.status, job.rescues) == ("pending", deaths)
    await die(submitted.id, take_suspect)
    assert (await job_of(submitted.id)).error_code == "poison"


async def clear(claim: Claim) -> None:
    """Let a suspect survive its time alone."""
    async with get_background_session() as session, session.begin():
        await clear_deaths(session, claim)


async def test_a_job_that_kills_its_workers_after_its_time_alone_is_poison_in_the_end() -> None:
    submitted = await submit("example.com")

    async def take_cleared() -> Claim:
        claim = await take_isolated()
        await clear(claim)
        return claim

    await die(submitted.id, take_one)
    for deaths in range(2, MAX_DEATHS):
        await die(submitted.id, take_one if deaths % 2 == 0 else take_cleared)
        assert (await job_of(submitted.id)).status == "pending", deaths
    await die(submitted.id, take_one)
    assert (await job_of(submitted.id)).error_code == "poison"


async def test_many_deaths_with_a_finished_document_in_between_are_not_poison() -> None:
    submitted = await submit("example.com")
    for _ in range(2 * MAX_DEATHS):
        await change(submitted.id, run_at=func.now())
        claim = await take_one()
        async with get_background_session() as session, session.begin():
            await report_progress(
                session, claim, lease_seconds=LEASE, progress=0.5, documents_finished=True
            )
        await let_lease_expire(submitted.id)
        await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.rescues) == ("pending", 1)


async def test_a_lease_that_expires_without_a_death_is_never_poison() -> None:
    submitted = await submit("example.com")
    await change(submitted.id, rescues=POISON_RESCUES)
    await begin(await take_isolated())
    await let_lease_expire(submitted.id)
    async with get_background_session() as session, session.begin():
        (rescued,) = await rescue(session, count_deaths=False)
    assert (rescued.status, rescued.rescues) == ("pending", POISON_RESCUES)


async def test_a_job_of_a_worker_that_was_seen_later_is_rescued_without_blame() -> None:
    submitted = await submit("example.com")
    await begin(await take_one("worker-a"))
    async with get_background_session() as session, session.begin():
        await report_worker(session, WorkerReport("worker-a", "host", 1, "1", slots=1, running=1))
    await let_lease_expire(submitted.id)
    await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.rescues) == ("pending", 0)


async def restart_machine(job_id: int, worker: str = "worker-a") -> None:
    """Let the worker die with its machine, and another one report from there after the start."""
    for name, boot in ((worker, "before"), (f"{worker}-next", f"after-{job_id}")):
        report = WorkerReport(name, "host", 1, "1", slots=1, running=1, boot_id=boot)
        async with get_background_session() as session, session.begin():
            await report_worker(session, report)
    # A time after that of the report would say that the worker is alive.
    await change(job_id, lease_until=func.now() - timedelta(microseconds=1))
    async with get_background_session() as session, session.begin():
        seen = update(Worker).values(last_seen_at=func.now() - timedelta(minutes=2))
        await session.execute(seen.where(Worker.id == worker))


async def test_a_worker_whose_machine_was_restarted_was_not_killed_by_its_job() -> None:
    submitted = await submit("example.com")
    await begin(await take_one("worker-a"))
    await restart_machine(submitted.id)
    await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.rescues) == ("pending", 0)
    assert await codes_of_attempts(submitted.id) == ["lease_lost"]


@pytest.mark.parametrize("boot_id", ["before", None])
async def test_a_worker_that_starts_again_on_the_same_machine_is_no_excuse(
    boot_id: str | None,
) -> None:
    submitted = await submit("example.com")
    await begin(await take_one("worker-a"))
    await restart_machine(submitted.id)
    async with get_background_session() as session, session.begin():
        await session.execute(update(Worker).values(boot_id=boot_id))
    await rescue_all()
    assert (await job_of(submitted.id)).rescues == 1


async def let_server_restart(job_id: int) -> None:
    """As if PostgreSQL had been started after the job was claimed."""
    await change(job_id, started_at=func.pg_postmaster_start_time() - timedelta(seconds=1))


async def test_a_worker_that_died_with_the_database_server_was_not_killed_by_its_job() -> None:
    submitted = await submit("example.com")
    for _ in range(POISON_RESCUES):
        await begin(await take_one())
        await let_server_restart(submitted.id)
        await let_lease_expire(submitted.id)
        await rescue_all()
    job = await job_of(submitted.id)
    assert (job.status, job.rescues, job.attempt) == ("pending", 0, 0)


async def test_a_job_that_always_dies_with_the_database_server_becomes_a_suspect_in_the_end() -> (
    None
):
    submitted = await submit("example.com")
    for _ in range(MAX_DEATHS + DEATHS_BEFORE_ALONE):
        await change(submitted.id, run_at=func.now())
        await begin(await take_one())
        await let_server_restart(submitted.id)
        await let_lease_expire(submitted.id)
        await rescue_all()
    assert (await job_of(submitted.id)).rescues == DEATHS_BEFORE_ALONE


async def test_a_living_worker_takes_the_blame_back_once() -> None:
    submitted = await submit("example.com")
    claim = await take_one("worker-a")
    await begin(claim)
    await let_lease_expire(submitted.id)
    await rescue_all()
    assert (await job_of(submitted.id)).rescues == 1
    await change(submitted.id, rescues=2)
    for _ in range(2):
        async with get_background_session() as session, session.begin():
            await forgive_rescues(session, [claim])
    assert (await job_of(submitted.id)).rescues == 1


@pytest.mark.parametrize("worker_lives", [True, False])
async def test_the_pardon_of_a_rescue_without_blame_keeps_an_earlier_death(
    worker_lives: bool,
) -> None:
    submitted = await submit("example.com")
    await die(submitted.id, take_one)
    claim = await take_one("worker-a")
    await begin(claim)
    await let_lease_expire(submitted.id)
    async with get_background_session() as session, session.begin():
        if worker_lives:
            report = WorkerReport("worker-a", "host", 1, "1", slots=1, running=1)
            await report_worker(session, report)
        (rescued,) = await rescue(session, count_deaths=worker_lives)
        assert rescued.rescues == 1
        await forgive_rescues(session, [claim])
    assert (await job_of(submitted.id)).rescues == 1
    assert await codes_of_attempts(submitted.id) == ["lease_expired", "lease_lost"]


async def test_a_job_that_its_worker_ended_itself_keeps_the_blame_for_earlier_deaths() -> None:
    submitted = await submit("example.com")
    await die(submitted.id, take_one)
    claim = await take_one()
    async with get_background_session() as session, session.begin():
        await forgive_rescues(session, [claim])
    assert (await job_of(submitted.id)).rescues == 1


async def test_a_rescued_job_that_was_asked_to_stop_is_cancelled() -> None:
    submitted = await submit("example.com")
    await take_one()
    await change(submitted.id, cancel_requested_at=func.now())
    await let_lease_expire(submitted.id)
    await rescue_all()
    assert (await job_of(submitted.id)).status == "cancelled"


async def test_a_rescue_after_an_outage_of_the_database_blames_no_job() -> None:
    job = await submit("example.com")
    for _ in range(POISON_RESCUES + 1):
        await begin(await take_one())
        await let_lease_expire(job.id)
        async with get_background_session() as session, session.begin():
            (rescued,) = await rescue(session, count_deaths=False)
        assert (rescued.status, rescued.rescues, rescued.attempt) == ("pending", 0, 0)


async def test_a_worker_disowns_only_what_it_does_not_run() -> None:
    for site in ("a.example.com", "b.example.com", "c.example.com"):
        await submit(site)
    lost, running = await take(2, "worker-a")
    (other,) = await take(1, "worker-b")
    async with get_background_session() as session, session.begin():
        given_back = await release_orphans(session, "worker-a", [running.id])
        assert all(job.run_at > job.updated_at for job in given_back)
    assert [(job.id, job.status, job.attempt) for job in given_back] == [(lost.id, "pending", 0)]
    assert (await job_of(running.id)).status == (await job_of(other.id)).status == "processing"


async def test_a_disowned_job_that_was_cancelled_ends() -> None:
    await submit("example.com")
    lost = await take_one()
    await change(lost.id, cancel_requested_at=func.now())
    async with get_background_session() as session, session.begin():
        (job,) = await release_orphans(session, "worker-a", [])
    assert job.status == "cancelled"
    assert job.finished_at is not None
