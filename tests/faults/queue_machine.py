"""The queue as a model: every operation in any order, also by workers that lost their job long ago.

The model knows for each job what its status, fence and counters must be; after each step the
table must agree. A worker with an old fence must be refused, and nothing may have changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import func, select, text, update

from siteatlas.errors import JobActive, JobCancelled, JobStateConflict, LeaseLost
from siteatlas.net.address import parse_site
from siteatlas.queue.claims import DEATHS_BEFORE_ALONE, claim, claim_alone
from siteatlas.queue.completion import cancel_running, complete, fail, release
from siteatlas.queue.fence import Claim, heartbeat, report_progress
from siteatlas.queue.operator_actions import cancel, retry
from siteatlas.queue.rescues import (
    MAX_DEATHS,
    MAX_RESCUES,
    POISON_RESCUES,
    clear_deaths,
    mark_alone,
    release_orphans,
    rescue,
)
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import LOCAL_USER_ID, Job, JobAttempt
from siteatlas.storage.session import AsyncSession, get_background_session

LEASE = 60.0
LAST_CLAIMS = 4
SITES = ("a.example.com", "b.example.com", "c.example.com")
ACTIVE = {"pending", "processing"}


@dataclass
class Known:
    """What the model knows of one job."""

    site: str
    status: str = "pending"
    fence: int = 0
    attempt: int = 0
    rescues: int = 0
    deaths: int = 0
    alone: bool = False
    begun: bool = False
    cancel_asked: bool = False
    expired: bool = False
    progress: float = 0.0
    ends: dict[int, str] = field(default_factory=dict)

    def die(self) -> bool:
        """Its worker died; whether that makes it poison."""
        self.rescues += 1
        self.deaths += 1
        is_suspected_again = self.deaths >= MAX_DEATHS and self.rescues >= DEATHS_BEFORE_ALONE
        fatal = POISON_RESCUES if self.alone else MAX_RESCUES
        return self.rescues >= fatal or is_suspected_again

    def leave(self, outcome: str, status: str) -> None:
        """The current attempt ends."""
        self.ends[self.fence] = outcome
        wanted = self.cancel_asked and status != "completed"
        self.status = "cancelled" if wanted else status
        self.expired = False


def one_runs(machine: QueueMachine) -> bool:
    """Whether a job is running."""
    return any(job.status == "processing" for job in machine.jobs.values())


class QueueMachine(RuleBasedStateMachine):
    """Runs against the bound database with an event loop of its own; tables start empty."""

    runner: asyncio.Runner
    outcomes: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Known] = {}
        self.given: list[Claim] = []
        self._in_session(lambda s: s.execute(text("TRUNCATE jobs, domains, scans CASCADE")))

    def teardown(self) -> None:
        """Count how attempts ended, so that a test can say what it has seen."""
        self.outcomes.update(end for job in self.jobs.values() for end in job.ends.values())

    def _in_session(self, work: Callable[[AsyncSession], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with get_background_session() as session, session.begin():
                return await work(session)

        return self.runner.run(run())

    def _holder(self) -> st.SearchStrategy[Claim]:
        """One of the last claims, which may be old or good; rightful holders come up often."""
        rightful = [one for one in self.given if self._holds(one)]
        return st.sampled_from(rightful + self.given[-LAST_CLAIMS:])

    def _holds(self, one: Claim) -> bool:
        job = self.jobs[one.id]
        return job.status == "processing" and job.fence == one.fence

    def _guarded(
        self, one: Claim, work: Callable[[AsyncSession], Awaitable[Any]]
    ) -> tuple[bool, Any]:
        """Run a verb of a holder; whether it was let through must be what the model says."""
        try:
            result = self._in_session(work)
        except LeaseLost:
            assert not self._holds(one), "a rightful holder was refused"
            return False, None
        assert self._holds(one), "a holder with an old fence was let through"
        return True, result

    @initialize()
    def begin(self) -> None:
        """One job waits and two are held, so that every verb has something to do at once."""
        for site in SITES:
            self.submit(site)
        self.claim(2, "one")

    @rule(site=st.sampled_from(SITES))
    def submit(self, site: str) -> None:
        submitted = self._in_session(
            lambda s: submit_site(s, parse_site(site), created_by=LOCAL_USER_ID)
        )
        active = [i for i, job in self.jobs.items() if job.site == site and job.status in ACTIVE]
        assert submitted.deduplicated == bool(active)
        if active:
            assert [submitted.id] == active
        else:
            self.jobs[submitted.id] = Known(site)

    @rule(limit=st.integers(1, 3), worker=st.sampled_from(("one", "two")))
    def claim(self, limit: int, worker: str) -> None:
        taken = self._in_session(lambda s: claim(s, worker, limit, LEASE))
        waiting = [job for job in self._waiting() if job.rescues < DEATHS_BEFORE_ALONE]
        assert len(taken) == min(limit, len(waiting))
        for one in taken:
            self._take(one, suspect=False)

    @rule(worker=st.sampled_from(("one", "two")))
    def claim_alone(self, worker: str) -> None:
        taken = self._in_session(lambda s: claim_alone(s, worker, LEASE))
        suspects = [job for job in self._waiting() if job.rescues >= DEATHS_BEFORE_ALONE]
        assert (taken is None) == (not suspects)
        if taken is not None:
            assert self.jobs[taken.id] in suspects
            self._take(taken, suspect=True)

    def _waiting(self) -> list[Known]:
        return [job for job in self.jobs.values() if job.status == "pending"]

    def _take(self, one: Claim, *, suspect: bool) -> None:
        job = self.jobs[one.id]
        assert job.status == "pending"
        job.status, job.fence, job.attempt = "processing", job.fence + 1, job.attempt + 1
        job.alone = job.begun = False
        assert (one.fence, one.attempt, one.alone) == (job.fence, job.attempt, suspect)
        self.given.append(one)

    @rule(data=st.data())
    def isolate(self, data: st.DataObject) -> None:
        one = data.draw(self._holder())
        passed, _ = self._guarded(one, lambda s: mark_alone(s, one))
        if passed:
            self.jobs[one.id].alone = True

    @rule(data=st.data())
    def survive_alone(self, data: st.DataObject) -> None:
        one = data.draw(self._holder())
        self._in_session(lambda s: clear_deaths(s, one))
        job = self.jobs[one.id]
        if self._holds(one) and job.alone:
            job.alone, job.rescues = False, 0

    @rule()
    def time_comes(self) -> None:
        """Every waiting job is due."""
        self._in_session(lambda s: s.execute(update(Job).values(run_at=func.now())))

    @precondition(one_runs)
    @rule(data=st.data())
    def lease_runs_out(self, data: st.DataObject) -> None:
        running = [i for i, job in self.jobs.items() if job.status == "processing"]
        job_id = data.draw(st.sampled_from(running))
        past = func.now() - timedelta(seconds=1)
        change = update(Job).where(Job.id == job_id).values(lease_until=past)
        self._in_session(lambda s: s.execute(change))
        self.jobs[job_id].expired = True

    @rule(count_deaths=st.booleans())
    def rescue(self, count_deaths: bool) -> None:
        taken = self._in_session(lambda s: rescue(s, count_deaths=count_deaths))
        silent = {i for i, j in self.jobs.items() if j.expired and j.status == "processing"}
        assert {job.id for job in taken} == silent
        for job_id in silent:
            job = self.jobs[job_id]
            job.attempt = max(0, job.attempt - 1)
            is_poison = count_deaths and job.begun and job.die()
            job.leave("rescued", "failed" if is_poison else "pending")
        self.time_comes()

    @rule(worker=st.sampled_from(("one", "two")))
    def release_orphans(self, worker: str) -> None:
        taken = self._in_session(lambda s: release_orphans(s, worker, []))
        for job in taken:
            known = self.jobs[job.id]
            assert known.status == "processing"
            known.attempt = max(0, known.attempt - 1)
            known.leave("released", "pending")
        self.time_comes()

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        held = data.draw(st.lists(self._holder(), max_size=3))
        kept, asked = self._in_session(lambda s: heartbeat(s, held, LEASE))
        rightful = {one.id for one in held if self._holds(one)}
        assert kept == rightful
        assert asked == {i for i in rightful if self.jobs[i].cancel_asked}
        for job_id in rightful:
            self.jobs[job_id].expired = False

    @rule(data=st.data(), progress=st.floats(0, 0.9), finished=st.booleans())
    def write(self, data: st.DataObject, progress: float, finished: bool) -> None:
        one = data.draw(self._holder())

        def fenced(session: AsyncSession) -> Awaitable[None]:
            return report_progress(
                session, one, lease_seconds=LEASE, progress=progress, documents_finished=finished
            )

        try:
            passed, _ = self._guarded(one, fenced)
        except JobCancelled:
            assert self._holds(one)
            assert self.jobs[one.id].cancel_asked
            return
        if passed:
            job = self.jobs[one.id]
            job.expired, job.begun = False, True
            job.progress = max(job.progress, progress)
            job.rescues = 0 if finished else job.rescues
            job.alone = job.alone and not finished

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        one = data.draw(self._holder())
        passed, _ = self._guarded(one, lambda s: complete(s, one, {"url_count": 1}))
        if passed:
            self.jobs[one.id].progress = 1.0
            self.jobs[one.id].leave("completed", "completed")

    @rule(data=st.data(), transient=st.booleans())
    def fail(self, data: st.DataObject, transient: bool) -> None:
        one = data.draw(self._holder())
        passed, _ = self._guarded(
            one, lambda s: fail(s, one, code="x", message="x", transient=transient)
        )
        if passed:
            again = transient and one.attempt < one.max_attempts
            self.jobs[one.id].leave(
                "retried" if again else "failed", "pending" if again else "failed"
            )
        self.time_comes()

    @rule(data=st.data(), snooze=st.booleans())
    def release(self, data: st.DataObject, snooze: bool) -> None:
        one = data.draw(self._holder())
        passed, _ = self._guarded(one, lambda s: release(s, one, snooze=snooze))
        if passed:
            job = self.jobs[one.id]
            job.attempt = max(0, job.attempt - 1)
            job.leave("snoozed" if snooze else "released", "pending")

    @rule(data=st.data())
    def stop_as_asked(self, data: st.DataObject) -> None:
        one = data.draw(self._holder())
        passed, _ = self._guarded(one, lambda s: cancel_running(s, one))
        if passed:
            self.jobs[one.id].leave("cancelled", "cancelled")

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[job_id]
        try:
            self._in_session(lambda s: cancel(s, job_id))
        except JobStateConflict:
            assert job.status in {"completed", "failed"}
            return
        assert job.status in {*ACTIVE, "cancelled"}
        if job.status in ACTIVE:
            job.cancel_asked = job.begun = True
            job.status = "cancelled" if job.status == "pending" else job.status

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[job_id]
        rivals = [j for j in self.jobs.values() if j.site == job.site and j.status in ACTIVE]
        try:
            self._in_session(lambda s: retry(s, job_id))
        except (JobActive, JobStateConflict):
            assert rivals or job.status not in {"failed", "cancelled"}
            return
        assert not rivals
        assert job.status in {"failed", "cancelled"}
        job.status, job.attempt, job.rescues, job.cancel_asked = "pending", 0, 0, False
        job.progress = 0.0  # its scan had ended, so it starts over

    @invariant()
    def the_table_agrees(self) -> None:
        rows = self._in_session(self._rows)
        found = {
            row.id: (row.status, row.fence, row.attempt, row.rescues, row.cancel_requested_at)
            for row in rows
        }
        expected = {
            i: (j.status, j.fence, j.attempt, j.rescues, j.cancel_asked)
            for i, j in self.jobs.items()
        }
        assert {i: (*row[:4], row[4] is not None) for i, row in found.items()} == expected
        for row in rows:
            known = self.jobs[row.id]
            assert abs(row.progress - known.progress) < 1e-6
            assert row.alone == known.alone
            assert (row.lease_until is not None) == (row.status == "processing")
            assert (row.finished_at is not None) == (row.status not in ACTIVE)
            if row.status == "completed":
                assert row.result_data == {"url_count": 1}

    @invariant()
    def every_attempt_ended_once(self) -> None:
        rows = self._in_session(self._attempts)
        found: dict[int, dict[int, str]] = {job_id: {} for job_id in self.jobs}
        for job_id, fence, outcome in rows:
            found[job_id][fence] = outcome
        assert found == {job_id: job.ends for job_id, job in self.jobs.items()}

    @staticmethod
    async def _rows(session: AsyncSession) -> list[Job]:
        return list((await session.execute(select(Job))).scalars())

    @staticmethod
    async def _attempts(session: AsyncSession) -> list[tuple[int, int, str]]:
        statement = select(JobAttempt.job_id, JobAttempt.fence, JobAttempt.outcome)
        rows = (await session.execute(statement)).all()
        return [(row.job_id, row.fence, row.outcome) for row in rows]
