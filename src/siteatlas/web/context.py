"""What pages share: the services that `main` passes, and read sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Protocol, TypeVar

from fastapi import Depends, Request

from siteatlas.access.installation import Installation
from siteatlas.insights.changes_over_time import ChangesOverTime
from siteatlas.insights.health import DatabaseState
from siteatlas.insights.problem_totals import ProblemTotal
from siteatlas.insights.queue_load import QueueLoad
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_session

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
    def problem_totals(self) -> Probe[list[ProblemTotal]]:
        """Problems of all sites by code, at most a minute old."""

    def wake_consumer(self) -> None:
        """Wake the consumer of this process after a job was committed."""

    def notify_scheduler(self) -> None:
        """Notify the scheduler of this process that a site or webhook may be due earlier."""


async def _services(request: Request) -> Services:
    """The services that `main` put into the application."""
    services: Services = request.app.state.web
    return services


async def _read_session() -> AsyncIterator[AsyncSession]:
    """Dependency of pages: a session in a transaction that lasts as long as the handler."""
    async with get_session() as session, session.begin():
        yield session


Context = Annotated[Services, Depends(_services)]
ReadSession = Annotated[AsyncSession, Depends(_read_session, scope="function")]
