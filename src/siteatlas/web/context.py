"""What pages share: the services that `main` passes, read sessions, and error pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from siteatlas.errors import SiteatlasError
from siteatlas.insights.health import DatabaseState
from siteatlas.insights.queue_load import QueueLoad
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, get_session
from siteatlas.web.templating import render

AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Probe(Protocol[AnswerT_co]):
    """A check of the database that answers in time."""

    async def run(self) -> AnswerT_co:
        """The result; DatabaseTimeout if it takes too long."""


class Services(Protocol):
    """What pages need of the process that serves them; `main` passes the context of the API."""

    settings: Settings
    policy: EgressPolicy

    @property
    def database_state(self) -> Probe[DatabaseState]:
        """Version, schema and speed of the database."""

    @property
    def queue_load(self) -> Probe[QueueLoad]:
        """Jobs by status, living workers, overdue domains."""

    def wake_consumer(self) -> None:
        """Wake the consumer of this process after a job was committed."""

    def notify_scheduler(self) -> None:
        """Notify the scheduler of this process that a site may be due earlier."""


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


class PageRoute(APIRoute):
    """A route whose errors become pages, with the status that the API would give."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler of the framework."""
        handle = super().get_route_handler()

        async def handle_with_error_page(request: Request) -> Response:
            """Run the handler; show an error of ours as a page."""
            try:
                return await handle(request)
            except SiteatlasError as error:
                return error_page(request, error)

        return handle_with_error_page


def error_page(request: Request, error: SiteatlasError) -> Response:
    """The page of an error."""
    return render(
        request,
        "error.html",
        status_code=error.http_status,
        code=error.code,
        message=error.message,
        number=error.http_status,
    )
