"""The application: the only place where API, pages, scheduler and database are wired together.

`siteatlas serve` runs it. Other servers can run it too: `uvicorn siteatlas.main:app` or `uvicorn
--factory siteatlas.main:create_app`; settings then come from the environment and the settings file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from siteatlas import __version__
from siteatlas.access import authentication as login
from siteatlas.access.authentication import AccessControl, Authentication
from siteatlas.access.keys import Installation
from siteatlas.access.limits import AccessLimits
from siteatlas.access.origin import (
    BrowserPages,
    Front,
    LocalMode,
    SecurityHeaders,
    cross_origin_headers,
    preflights,
)
from siteatlas.aio import background_task
from siteatlas.api.context import ApiContext
from siteatlas.api.limits import RequestBodyLimits, RequestHeadLimits
from siteatlas.api.middleware import Compression, RequestBoundary, RequestMetrics
from siteatlas.api.openapi import DESCRIPTION, TAGS
from siteatlas.api.routes import LARGER_BODIES, install_api, operation_id, require_marks
from siteatlas.logs import configure_logging
from siteatlas.meters import watch_loop_lag
from siteatlas.net.egress import EgressPolicy, self_check
from siteatlas.net.gate import require_usable
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.session import Database, bind_database
from siteatlas.storage.startup import open_storage
from siteatlas.web.pages.jobs import LARGER_FORMS
from siteatlas.web.routes import install_web
from siteatlas.web.templating import is_page


def create_app(
    settings: Settings | None = None,
    policy: EgressPolicy | None = None,
    *,
    run_scheduler: bool = True,
    database: Database | None = None,
    installation: Installation | None = None,
    insecure_no_auth: bool = False,
) -> FastAPI:
    """The web application; its lifespan opens the database and runs the scheduler.

    A database that is passed in belongs to the caller and stays open. Without `run_scheduler`
    jobs are queued here and run by `siteatlas worker`. Without `settings` the application reads
    them and configures logging, as a server that knows nothing of Siteatlas needs it. A caller
    that has asked whether the `installation` is closed passes it.
    """
    if settings is None:
        loaded = load_settings()
        require_usable(loaded)
        settings = loaded.settings
        configure_logging(settings.log_level, settings.log_format)
    installation = installation or Installation()
    context = ApiContext(
        settings, policy or EgressPolicy.from_text(settings.egress_allow), installation
    )
    control = _access_control(settings, installation, is_insecure=insecure_no_auth)
    app = FastAPI(
        title="Siteatlas",
        version=__version__,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        # Otherwise the framework takes exporters from the environment and sends past our gate.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
        middleware=_middleware(settings, control),
        lifespan=_lifespan(context, run_scheduler=run_scheduler, database=database),
    )
    app.state.api = context
    app.state.access = control
    app.include_router(login.router)
    install_api(app)
    install_web(app, context)
    require_marks(app)
    return app


def _middleware(settings: Settings, control: AccessControl) -> list[Middleware]:
    """The layers around the routes, the outermost first."""
    return [
        Middleware(RequestMetrics),
        Middleware(SecurityHeaders, over_tls=settings.public_url.startswith("https:")),
        # Around the boundary, so that pages of allowed origins can read its error responses.
        *cross_origin_headers(settings.cors_origins),
        Middleware(RequestBoundary),
        Middleware(RequestHeadLimits),
        *preflights(settings.cors_origins),
        Middleware(Authentication, control=control),
        Middleware(RequestBodyLimits, larger=LARGER_BODIES | LARGER_FORMS, takes_forms=is_page),
        Middleware(Compression),
    ]


def _access_control(
    settings: Settings, installation: Installation, *, is_insecure: bool
) -> AccessControl:
    """Who may enter, as the settings say."""
    pages = BrowserPages(is_page)
    local = LocalMode(pages, host=settings.host, port=settings.port)
    front = Front.of(settings, local, pages)
    return AccessControl(
        installation, local, front, AccessLimits(settings), is_insecure=is_insecure
    )


def _lifespan(
    context: ApiContext, *, run_scheduler: bool, database: Database | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """The lifespan of the application: database, event loop monitoring and scheduler."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Start what the application requires, and stop it in reverse order."""
        self_check()
        async with AsyncExitStack() as stack:
            if database is None:
                await stack.enter_async_context(
                    open_storage(context.settings, go_on_waiting=lambda: True)
                )
            else:
                bind_database(database)
            stack.push_async_callback(context.installation.finish)
            await stack.enter_async_context(background_task(watch_loop_lag()))
            stack.callback(end_waiting, app)
            if run_scheduler:
                await stack.enter_async_context(_run_scheduler_in_lifespan(context))
            yield

    return lifespan


def end_waiting(app: FastAPI) -> None:
    """End the requests that wait for something to happen, because the service stops."""
    app.state.api.feed.close()
    app.state.broadcaster.close()


@asynccontextmanager
async def _run_scheduler_in_lifespan(context: ApiContext) -> AsyncIterator[None]:
    """Run the scheduler as part of the lifespan of the application, wired to the API context."""
    scheduler = SitemapScheduler(context.settings, context.policy)
    await scheduler.start()
    context.wake, context.reschedule = scheduler.wake, scheduler.reschedule
    context.drain = scheduler.drain
    context.scheduler_is_alive = lambda: scheduler.is_alive
    try:
        yield
    finally:
        context.wake = context.reschedule = context.scheduler_is_alive = context.drain = None
        await scheduler.shutdown()


@cache
def _default_app() -> FastAPI:
    """The application of `uvicorn siteatlas.main:app`, created once."""
    return create_app()


def __getattr__(name: str) -> Any:
    """Creates `app` on first access, so that importing this module reads no settings."""
    if name == "app":
        return _default_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
