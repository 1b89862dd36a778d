"""What routes share: the context that `main` passes, parameters, and response texts.

The context contains the egress policy, the settings, the scheduler, and database checks that
respond in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Path, Request

from siteatlas.access.installation import Installation
from siteatlas.api.database_checks import DatabaseProbe
from siteatlas.api.feed_watcher import FeedWatcher, waiting_quota
from siteatlas.insights.changes_over_time import ChangesOverTime
from siteatlas.insights.health import DatabaseState, database_state
from siteatlas.insights.problem_totals import ProblemTotal, ProblemTotals
from siteatlas.insights.queue_load import EndedJobs, QueueLoad, queue_load
from siteatlas.insights.workers import any_worker_alive
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Settings
from siteatlas.storage.autocommit import Reader

NO_WORKER = "No worker has been seen for a minute. Start one with: siteatlas worker"
STATUS_PATH = "/api/v3/sitemap/status/{job_id}"
TRUSTED_SECONDS = 10.0
# More than the server gives a statement of a request, so that its error comes first.
TOTALS_SECONDS = 12.0


@dataclass(slots=True)
class ApiContext:
    """`wake`, `reschedule` and `scheduler_is_alive` are None in a process without a scheduler."""

    settings: Settings
    policy: EgressPolicy
    installation: Installation = field(default_factory=Installation)
    wake: Callable[[], None] | None = None
    reschedule: Callable[[], None] | None = None
    scheduler_is_alive: Callable[[], bool] | None = None
    database_state: DatabaseProbe[DatabaseState] = field(init=False)
    queue_load: DatabaseProbe[QueueLoad] = field(init=False)
    changes_over_time: ChangesOverTime = field(init=False, default_factory=ChangesOverTime)
    problem_totals: DatabaseProbe[list[ProblemTotal]] = field(init=False)
    feed: FeedWatcher = field(init=False)
    _worker_seen_until: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.feed = FeedWatcher(waiting_quota(self.settings.max_connections))
        ended_jobs = EndedJobs()
        self.database_state = DatabaseProbe(database_state)
        self.queue_load = DatabaseProbe(lambda session: queue_load(session, ended_jobs))
        self.problem_totals = DatabaseProbe(ProblemTotals().read, TOTALS_SECONDS)

    @property
    def scheduler_has_ended(self) -> bool:
        """Whether this process has a scheduler that no longer works."""
        return self.scheduler_is_alive is not None and not self.scheduler_is_alive()

    def wake_consumer(self) -> None:
        """Wake the consumer of this process, if there is one, after a job was committed."""
        if self.wake is not None:
            self.wake()

    def notify_scheduler(self) -> None:
        """Notify the scheduler of this process, if there is one, that something may be due earlier.

        A site that is watched, or a webhook that was created or changed.
        """
        if self.reschedule is not None:
            self.reschedule()

    @property
    def knows_live_worker(self) -> bool:
        """Whether a worker is running as far as this process knows without asking the database."""
        works_itself = self.wake is not None and not self.scheduler_has_ended
        return works_itself or time.monotonic() < self._worker_seen_until

    async def has_live_worker(self, session: Reader) -> bool:
        """Whether a worker is running, for the warning in responses; True is cached briefly."""
        if self.knows_live_worker:
            return True
        alive = await any_worker_alive(session)
        if alive:
            self._worker_seen_until = time.monotonic() + TRUSTED_SECONDS
        return alive


async def api_context(request: Request) -> ApiContext:
    """The context that `main` put into the application."""
    context = request.app.state.api
    assert isinstance(context, ApiContext)
    return context


Context = Annotated[ApiContext, Depends(api_context)]
JobIdent = Annotated[
    str, Path(max_length=64, description="The UUID or the number of a job.", examples=["42"])
]
