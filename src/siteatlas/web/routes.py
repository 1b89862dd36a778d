"""Registers the dashboard: its pages, its event stream and its static files; called by `main`."""

from __future__ import annotations

from fastapi import FastAPI

from siteatlas.web import live
from siteatlas.web.context import Services
from siteatlas.web.pages import (
    changes,
    domain,
    domains,
    jobs,
    overview,
    system,
    url,
    webhooks,
)
from siteatlas.web.templating import install_static_files, render_error

ROUTERS = (
    overview.router,
    domains.router,
    domain.router,
    url.router,
    changes.router,
    jobs.router,
    system.router,
    webhooks.router,
    live.router,
)


def install_web(app: FastAPI, services: Services) -> None:
    """Add the dashboard to an application."""
    app.state.web = services
    app.state.error_page = render_error
    app.state.broadcaster = live.Broadcaster()
    for router in ROUTERS:
        app.include_router(router)
    if services.settings.log_level == "debug":
        app.include_router(system.patterns_router)
    install_static_files(app)
