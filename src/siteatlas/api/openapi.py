"""The OpenAPI document: what all operations have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from siteatlas.api.problems import MEDIA_TYPE, Problem

REF = "#/components/schemas/{model}"
DESCRIPTION = (
    "Finds the sitemaps of any site, stores every URL, and rescans the site on a schedule."
)
TAGS = [
    {"name": "scans", "description": "Submit sites and follow their scans."},
    {"name": "jobs", "description": "The jobs of the queue."},
    {"name": "domains", "description": "Sites and what is stored about them."},
    {"name": "sitemaps", "description": "Single sitemaps."},
    {"name": "urls", "description": "Stored URLs of all sites."},
    {"name": "changes", "description": "What was added, changed and removed."},
    {
        "name": "webhooks",
        "description": "Addresses to which messages about published scans are sent.",
    },
    {"name": "access", "description": "Access keys and the audit trail."},
    {"name": "operations", "description": "Health and metrics."},
]
LOCATION: dict[str, Any] = {
    "headers": {
        "Location": {
            "description": "URL of what was created: a job, batch, site, key or webhook.",
            "schema": {"type": "string", "maxLength": 500},
        }
    }
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of a route, including the ones that every route has."""
    everywhere = {400, 401, 403, 408, 413, 414, 415, 422, 429, 431, 500, 503}
    return {status: _problem_declaration(status) for status in sorted(everywhere.union(statuses))}


def _problem_declaration(status: int) -> dict[str, Any]:
    declared: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model=Problem.__name__)}}},
    }
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        declared["headers"] = {
            "Retry-After": {
                "description": "Number of seconds to wait before the next request.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 3600},
            }
        }
    if status == HTTPStatus.UNAUTHORIZED:
        declared["headers"] = {
            "WWW-Authenticate": {
                "description": "How to authenticate: with an access key as a bearer token.",
                "schema": {"type": "string", "maxLength": 200},
            }
        }
    return declared


def openapi_of(
    app: FastAPI, marked_routes: Callable[[], Iterable[Any]]
) -> Callable[[], dict[str, Any]]:
    """The function that generates the OpenAPI document of an application, once."""

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            shapes = document["components"]["schemas"]
            shape = Problem.model_json_schema(ref_template=REF, mode="serialization")
            shapes |= shape.pop("$defs")
            shapes[Problem.__name__] = shape
            document = _with_answers(document)
            document["components"]["securitySchemes"] = {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access key. Before the first one was made, none is needed.",
                }
            }
            _declare_access(document["paths"], marked_routes())
            app.openapi_schema = document
        return app.openapi_schema

    return make


def _with_answers(document: dict[str, Any]) -> dict[str, Any]:
    """The document in which views have the names of answers: `DomainView` is `DomainAnswer`."""

    def answer_name(name: str) -> str:
        name = re.sub("View(?=_|$)", "Answer", name)
        return re.sub("Page(?=_|$)", "PageAnswer", name)

    ref = re.compile(r"(?<=#/components/schemas/)\w+")
    text = ref.sub(lambda found: answer_name(found[0]), json.dumps(document))
    document, used = json.loads(text), set(ref.findall(text))
    shapes = {answer_name(name): shape for name, shape in document["components"]["schemas"].items()}
    for name, shape in shapes.items():
        shape["title"] = re.sub(r"(\w+?)_(\w+)_$", r"\1[\2]", name)
    # The framework also declares the enumerations that views have in place.
    document["components"]["schemas"] = {name: shapes[name] for name in sorted(used)}
    return document


def _declare_access(paths: dict[str, Any], routes: Iterable[Any]) -> None:
    for route in routes:
        for method in route.methods & {name.upper() for name in paths.get(route.path, ())}:
            (mark,) = route.marks
            operation = paths[route.path][method.lower()]
            operation["security"] = [] if mark.scope is None else [{"key": []}]
            if mark.scope is not None:
                operation["x-scope"] = mark.scope.value
