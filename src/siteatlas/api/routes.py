"""Registers all routes of the API; called by `main`."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from siteatlas.access.marks import READ
from siteatlas.api.openapi import openapi_of
from siteatlas.api.problems import install_problem_handlers
from siteatlas.api.routers import (
    atom,
    audit,
    batches,
    changes,
    domain_contents,
    domain_imports,
    domains,
    exports,
    health,
    jobs,
    keys,
    metrics,
    scans,
    sitemaps,
    urls,
    webhooks,
)

ROUTERS = (
    scans.router,
    batches.router,
    jobs.router,
    domains.router,
    domain_imports.router,
    domain_contents.router,
    sitemaps.router,
    urls.router,
    exports.router,
    changes.router,
    atom.router,
    webhooks.router,
    keys.router,
    audit.router,
    health.router,
    metrics.router,
)


def operation_id(route: APIRoute) -> str:
    """The name of the handler, which is unique."""
    return route.name


def install_api(app: FastAPI) -> None:
    """Add the routes, their error responses and their description to an application."""
    for router in ROUTERS:
        app.include_router(router)
    install_problem_handlers(app)
    app.openapi = openapi_of(app)  # type: ignore[method-assign]
    app.add_api_route("/openapi.json", get_document, include_in_schema=False, dependencies=[READ])


async def get_document(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())
