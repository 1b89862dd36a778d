"""Registers all routes of the API, and checks that every route says what access it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, iter_route_contexts

from siteatlas.access.limits import READ, AccessMark
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
    app.openapi = openapi_of(app, partial(marked_routes, app))  # type: ignore[method-assign]
    app.add_api_route("/openapi.json", get_document, include_in_schema=False, dependencies=[READ])


async def get_document(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


def require_marks(app: FastAPI) -> None:
    """Raise unless each route has exactly one access mark."""
    unmarked = [route.path for route in marked_routes(app) if len(route.marks) != 1]
    if unmarked:
        raise AssertionError(f"These routes need exactly one access mark: {', '.join(unmarked)}")


@dataclass(frozen=True, slots=True)
class MarkedRoute:
    """A route or a mounted application, and its marks: exactly one in a sound application."""

    path: str
    methods: frozenset[str]
    marks: tuple[AccessMark, ...]


def marked_routes(app: FastAPI) -> Iterator[MarkedRoute]:
    """Every route of an application, including mounted ones and those that no document lists."""
    for context in iter_route_contexts(app.routes):
        yield MarkedRoute(
            context.path or "", frozenset(context.methods or ()), tuple(_marks_of(context))
        )


def _marks_of(route: Any) -> Iterator[AccessMark]:
    for dependency in getattr(route, "dependencies", None) or ():
        if isinstance(dependency.dependency, AccessMark):
            yield dependency.dependency
    mounted = getattr(getattr(route, "app", None), "access", None)
    if isinstance(mounted, AccessMark):
        yield mounted
