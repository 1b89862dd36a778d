"""Registers all routes of the API; called by `main`."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from siteatlas.access.limits import READ
from siteatlas.api.limits import KIB
from siteatlas.api.openapi import openapi_of
from siteatlas.api.problems import install_problem_handlers
from siteatlas.api.routers import (
    changes,
    domain_contents,
    domains,
    exports,
    health,
    jobs,
    keys,
    scans,
    webhooks,
)

ROUTERS = (
    scans.router,
    scans.batches_router,
    jobs.router,
    domains.router,
    domains.domain_imports_router,
    domain_contents.router,
    domain_contents.sitemaps_router,
    domain_contents.urls_router,
    exports.router,
    changes.router,
    webhooks.router,
    keys.router,
    keys.audit_router,
    health.router,
)
# The bytes that the body of a request to these paths may have.
LARGER_BODIES = {"/api/v3/sitemap/batch/create": 1024 * KIB, "/api/v3/domains/import": 2048 * KIB}


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
