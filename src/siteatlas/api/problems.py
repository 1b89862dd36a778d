"""Errors as RFC 9457 problem details: what every failed request is answered with.

Owns the shape and the handlers. Which errors exist is decided in `siteatlas.errors`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Scope

from siteatlas.access.identity import RequestKey
from siteatlas.api.schemas.base import examples
from siteatlas.catalog.paging import Cursor
from siteatlas.catalog.views import Count, Line, Paragraph, SmallCount, Word, declared
from siteatlas.errors import (
    ConfigurationError,
    DatabaseError,
    InputError,
    KeyInvalid,
    KeyRequired,
    NotFoundError,
    RequestMalformed,
    ScopeMissing,
    SiteatlasError,
    TooManyConnections,
    TooManyRequests,
)
from siteatlas.logs import get_logger

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="siteatlas"'
MAX_FIELD_ERRORS = 100
MAX_POINTER_CHARS = 200

log = get_logger("api")


class FieldRefused(Exception):
    """An error together with the part of the request that caused it."""

    def __init__(self, *faults: tuple[str, SiteatlasError], detail: str | None = None) -> None:
        super().__init__(detail)
        self.faults = faults
        self.detail = detail


def problem(
    scope: Scope,
    error: SiteatlasError,
    *,
    errors: Iterable[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response for an error of our own classes."""
    listed = list(errors)
    body = _problem_body(scope, type(error), error.message) | error.details
    if listed:
        body["errors"] = listed
    return _problem_response(scope, body, {**_problem_headers(error), **(headers or {})})


def _problem_headers(error: SiteatlasError) -> dict[str, str]:
    if isinstance(error, (DatabaseError, TooManyConnections)):
        return {"Retry-After": "5"}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if isinstance(error, (KeyRequired, ScopeMissing)):
        return {"WWW-Authenticate": _challenge(error)}
    # Where a request ends is unknown when its length is; what follows must not be read as another.
    return {"Connection": "close"} if isinstance(error, RequestMalformed) else {}


def _challenge(error: SiteatlasError) -> str:
    if isinstance(error, ScopeMissing):
        return f'{CHALLENGE}, error="insufficient_scope", scope="{error.scope}"'
    return f'{CHALLENGE}, error="invalid_token"' if isinstance(error, KeyInvalid) else CHALLENGE


def unexpected(scope: Scope) -> Response:
    """The response for an unexpected error; it reveals no internals."""
    return problem(scope, SiteatlasError())


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error that a route can raise with problem details."""
    app.add_exception_handler(SiteatlasError, _on_own_error)
    app.add_exception_handler(FieldRefused, _on_field_refused)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_own_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SiteatlasError)
    if isinstance(error, ConfigurationError) or error.http_status == SiteatlasError.http_status:
        raise error
    if isinstance(error, DatabaseError):
        log.warning("service_unavailable", path=request.url.path, error=error.code)
    return problem(request.scope, error)


async def _on_field_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, FieldRefused)
    errors = [_field_error(pointer, e.code, e.message) for pointer, e in error.faults]
    first = error.faults[0][1]
    shown = first if error.detail is None else InputError(error.detail)
    return problem(request.scope, shown, errors=errors[:MAX_FIELD_ERRORS])


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [
        _field_error(_pointer(loc[1:]), fault["type"], fault["msg"], place=str(loc[0]))
        for fault in error.errors()[:MAX_FIELD_ERRORS]
        if (loc := fault["loc"])
    ]
    return problem(request.scope, InputError(), errors=errors)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(request.scope, NotFoundError())
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(allowed_methods(request))
    status = HTTPStatus(error.status_code)
    code = status.name.lower()
    body = _problem_details(
        request.scope, status, code, title=status.phrase, detail=f"{status.phrase}."
    )
    return _problem_response(request.scope, body, headers)


def allowed_methods(request: Request) -> list[str]:
    """The HTTP methods that the routes accept for the path of a request.

    Of a path that is also a name, such as `/api/v3/domains/import`, those of the path.
    """
    scope = {key: request.scope[key] for key in ("type", "path", "headers", "root_path")}
    methods = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
    named = {
        method
        for context in iter_route_contexts(request.app.routes)
        if context.path == scope["path"]
        for method in context.methods or ()
    }
    if named:
        return [method for method in methods if method in named]
    return [
        method
        for method in methods
        if any(
            route.matches({**scope, "method": method})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]


def _problem_body(scope: Scope, kind: type[SiteatlasError], detail: str) -> dict[str, Any]:
    return _problem_details(scope, kind.http_status, kind.code, title=kind().message, detail=detail)


def _problem_details(
    scope: Scope, status: int, code: str, *, title: str, detail: str
) -> dict[str, Any]:
    scope[RequestKey.error_code] = code
    return {
        "type": f"urn:siteatlas:error:{code}",
        "title": title,
        "status": int(status),
        "detail": detail,
        "instance": bytes(scope.get("raw_path") or b"/").decode("ascii", "replace"),
        "code": code,
        "request_id": scope.get(RequestKey.request_id),
    }


def _problem_response(
    scope: Scope, body: Mapping[str, Any], headers: Mapping[str, str]
) -> Response:
    # The pages, if there are any, show a problem to a browser; programs get JSON.
    render = getattr(scope["app"].state, "error_page", None) if "app" in scope else None
    if render is not None and _accepts_html(scope):
        return Response(
            render(scope, body), body["status"], headers=dict(headers), media_type="text/html"
        )
    content = orjson.dumps(body)
    return Response(content, body["status"], headers=dict(headers), media_type=MEDIA_TYPE)


def _accepts_html(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _field_error(pointer: str, code: str, message: str, place: str = "body") -> dict[str, str]:
    return {"in": place, "pointer": pointer, "code": code, "message": message}


def _pointer(steps: Sequence[str | int]) -> str:
    path = "".join(f"/{_escape_pointer_step(step)}" for step in steps)
    return f"#{path}"[:MAX_POINTER_CHARS]


def _escape_pointer_step(step: str | int) -> str:
    text = str(step).encode("utf-8", "replace").decode()
    return text.replace("~", "~0").replace("/", "~1")


class FieldProblem(BaseModel):
    """One invalid value: where it is and what is wrong with it."""

    place: Annotated[str, declared(enum=["body", "query", "path", "header", "cookie"])] = Field(
        alias="in", description="The part of the request that contains the value."
    )
    pointer: Line = Field(description="A JSON pointer into that part, such as `#/limit`.")
    code: Word
    message: Paragraph


class Problem(BaseModel):
    """Why a request failed; `code` is stable, `title` and `detail` are for people."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {
                "type": "urn:siteatlas:error:job_not_found",
                "title": "There is no job with this id.",
                "status": 404,
                "detail": "There is no job with this id.",
                "instance": "/api/v3/jobs/42",
                "code": "job_not_found",
                "request_id": "5f0c1f6f4c1e4a0e9b7c2d1a8e6f3b90",
            },
            {
                "type": "urn:siteatlas:error:input_invalid",
                "title": "The request contains an invalid value.",
                "status": 422,
                "detail": "The request contains an invalid value.",
                "instance": "/api/v3/sitemap/scan",
                "code": "input_invalid",
                "request_id": "5f0c1f6f4c1e4a0e9b7c2d1a8e6f3b90",
                "errors": [
                    {
                        "in": "body",
                        "pointer": "#/base_url",
                        "code": "missing",
                        "message": "Field required",
                    }
                ],
            },
        )
    )

    type: Line
    title: Line
    status: SmallCount
    detail: Annotated[str, declared(maxLength=4000)]
    instance: Annotated[str, declared(maxLength=65_536)]
    code: Word
    request_id: Word | None
    errors: Annotated[list[FieldProblem], declared(maxItems=100)] | None = Field(
        None, description="The invalid values, if known."
    )
    earliest_cursor: Cursor | None = Field(
        None, description="With `cursor_expired`: the oldest position in the change feed."
    )
    earliest_seq: Count | None = Field(
        None, description="With `past_state_unavailable`: the first number that can be asked for."
    )
