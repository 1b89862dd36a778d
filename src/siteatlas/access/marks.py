"""Access marks: every route declares one of them as a dependency, and only one.

`READ`, `SCAN` and `ADMIN` name the scope that a request needs; `PUBLIC` is for what everyone may
see. An application with an unmarked route does not start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.requests import Request

from siteatlas.access.identity import current_identity
from siteatlas.access.limits import AccessLimits
from siteatlas.access.request_headers import SAFE_METHODS
from siteatlas.access.scopes import Scope
from siteatlas.errors import ScopeMissing


@dataclass(frozen=True, slots=True)
class AccessMark:
    """The scope that a route needs; None for a public one. FastAPI calls it for every request."""

    scope: Scope | None

    async def __call__(self, request: Request) -> None:
        """Refuse a request whose identity lacks the scope, or has made too many."""
        if self.scope is None:
            return
        identity = await current_identity(request)
        if self.scope not in identity.scopes:
            raise ScopeMissing(
                f"This request needs an access key with the scope {self.scope.value}.",
                scope=self.scope.value,
            )
        limits: AccessLimits = request.app.state.access.limits
        await limits.count_request(identity, is_read=request.method in SAFE_METHODS)


PUBLIC = Depends(AccessMark(None))
READ = Depends(AccessMark(Scope.READ))
SCAN = Depends(AccessMark(Scope.SCAN))
ADMIN = Depends(AccessMark(Scope.ADMIN))


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
    """The marks among the dependencies of a route, or the mark of a mounted application."""
    for dependency in getattr(route, "dependencies", None) or ():
        if isinstance(dependency.dependency, AccessMark):
            yield dependency.dependency
    mounted = getattr(getattr(route, "app", None), "access", None)
    if isinstance(mounted, AccessMark):
        yield mounted


def require_marks(app: FastAPI) -> None:
    """Raise unless each route has exactly one access mark."""
    unmarked = [route.path for route in marked_routes(app) if len(route.marks) != 1]
    if unmarked:
        raise AssertionError(f"These routes need exactly one access mark: {', '.join(unmarked)}")
