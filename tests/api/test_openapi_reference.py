"""The OpenAPI document is complete, and `/docs` shows it without the internet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import orjson
import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter

from siteatlas.api.problems import Problem
from siteatlas.api.schemas.base import RequestShape
from siteatlas.catalog.paging import Page
from siteatlas.catalog.sitemaps import SitemapView
from siteatlas.catalog.views import View, view_example
from siteatlas.main import create_app
from siteatlas.queue.views import JobStatusView, ScanResult
from siteatlas.settings import Settings
from siteatlas.web.templating import STATIC

OPERATIONS = """
DELETE /api/v3/domains/{domain}
DELETE /api/v3/domains/{domain}/findings/{code}/accept
DELETE /api/v3/keys/{key_id}
DELETE /api/v3/webhooks/{webhook_id}
GET /api/v3/audit
GET /api/v3/changes
GET /api/v3/changes.atom
GET /api/v3/domains
GET /api/v3/domains/{domain}
GET /api/v3/domains/{domain}/candidates
GET /api/v3/domains/{domain}/changes
GET /api/v3/domains/{domain}/changes.atom
GET /api/v3/domains/{domain}/compare
GET /api/v3/domains/{domain}/export
GET /api/v3/domains/{domain}/findings
GET /api/v3/domains/{domain}/headers
GET /api/v3/domains/{domain}/policy
GET /api/v3/domains/{domain}/problems
GET /api/v3/domains/{domain}/robots
GET /api/v3/domains/{domain}/scans
GET /api/v3/domains/{domain}/sections
GET /api/v3/domains/{domain}/sitemaps
GET /api/v3/domains/{domain}/urls
GET /api/v3/domains/{domain}/urls/history
GET /api/v3/export
GET /api/v3/jobs
GET /api/v3/jobs/{job_id}
GET /api/v3/keys
GET /api/v3/keys/{key_id}
GET /api/v3/sitemap/batch/status/{batch_id}
GET /api/v3/sitemap/status/{job_id}
GET /api/v3/sitemaps/{sitemap_id}
GET /api/v3/sitemaps/{sitemap_id}/urls
GET /api/v3/urls
GET /api/v3/webhooks
GET /api/v3/webhooks/{webhook_id}
GET /api/v3/webhooks/{webhook_id}/deliveries
GET /health
GET /health/database
GET /metrics
PATCH /api/v3/domains/{domain}
PATCH /api/v3/webhooks/{webhook_id}
POST /api/v3/domains
POST /api/v3/domains/import
POST /api/v3/domains/{domain}/findings/{code}/accept
POST /api/v3/domains/{domain}/release
POST /api/v3/jobs/{job_id}/cancel
POST /api/v3/jobs/{job_id}/retry
POST /api/v3/keys
POST /api/v3/sitemap/batch/create
POST /api/v3/sitemap/scan
POST /api/v3/webhooks
POST /api/v3/webhooks/{webhook_id}/replay
POST /api/v3/webhooks/{webhook_id}/rotate-secret
POST /api/v3/webhooks/{webhook_id}/test
PUT /api/v3/domains/{domain}/headers
"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app: FastAPI = create_app(Settings(), run_scheduler=False)
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def schemas(node: object) -> Iterator[dict[str, Any]]:
    """Every schema of the document that has a type."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node
        for key, value in node.items():
            if key not in {"examples", "example"}:
                yield from schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas(value)


def test_the_operations_are_the_known_ones(document: dict[str, Any]):
    assert sorted(name for name, _ in operations(document)) == OPERATIONS.split("\n")[1:-1]


def test_the_document_names_itself(document: dict[str, Any]):
    assert (document["info"]["title"], document["openapi"][:3]) == ("Siteatlas", "3.1")
    assert document["info"]["version"]
    assert document["tags"]


def test_operation_ids_are_unique_and_the_scan_keeps_its_name(document: dict[str, Any]):
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    assert document["paths"]["/api/v3/sitemap/scan"]["post"]["operationId"] == "scan_domain"


def test_every_operation_has_a_tag_a_summary_and_a_description(document: dict[str, Any]):
    silent = [
        name
        for name, operation in operations(document)
        if not all(operation.get(part) for part in ("tags", "summary", "description"))
    ]
    assert silent == []


def test_every_operation_declares_its_problems(document: dict[str, Any]):
    for name, operation in operations(document):
        for status in ("401", "403", "422", "429", "500", "503"):
            content = operation["responses"][status]["content"]
            assert list(content) == ["application/problem+json"], (name, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_reference_leads_somewhere(document: dict[str, Any]):
    named = set(re.findall(r"'#/components/schemas/([^']+)'", str(document)))
    assert named <= set(document["components"]["schemas"])


def test_every_text_number_and_list_has_bounds(document: dict[str, Any]):
    bounds = {
        "string": {"maxLength", "format", "enum", "const"},
        "integer": {"maximum"},
        "array": {"maxItems"},
    }
    unbounded = [
        schema
        for schema in schemas(document)
        if schema["type"] in bounds and not bounds[schema["type"]] & set(schema)
    ]
    assert unbounded == []


def subclasses(shape: type[Any]) -> Iterator[type[Any]]:
    for inherited in shape.__subclasses__():
        yield inherited
        yield from subclasses(inherited)


def test_the_examples_of_a_shape_fit_it(document: dict[str, Any]):
    checked = set()
    shapes: list[type[Any]] = [*subclasses(View), *subclasses(RequestShape), Problem]
    for shape in shapes:
        name = shape.__name__.replace("View", "Answer")
        if name in document["components"]["schemas"] and not issubclass(shape, Page):
            schema = TypeAdapter[Any](shape).json_schema(mode="serialization")
            validator = jsonschema_rs.validator_for(schema)
            for example in schema.get("examples", ()):
                assert set(example) <= set(schema["properties"]), shape
                validator.validate(example)
                checked.add(shape.__name__)
    assert {"JobView", "BatchStatusView", "ScanRequest", "Problem"} <= checked


def test_the_example_of_an_answer_leaves_out_only_what_may_be_missing():
    example = view_example(ScanResult)
    missing = {"known_sitemap_count", "skipped_sitemaps"}
    assert {field.name for field in fields(ScanResult)} - set(example) == missing
    required = view_example(SitemapView)
    assert list(required) == [field.name for field in fields(SitemapView)]
    assert (required["url_count"], required["error"]) == (12, None)


def test_every_body_and_answer_has_an_example(document: dict[str, Any]):
    parts = {"BatchItemAnswer", "DomainStatusAnswer", "PoolAnswer", "FieldProblem", "ListingState"}
    parts |= {"ChangeColumns", "ExportFormat", "Exported", "FoundSitemap", "ProblemState"}
    parts |= {"DomainState", "SampleAnswer", "FindingSample", "FindingState"}
    bare = [
        name
        for name, schema in document["components"]["schemas"].items()
        if "examples" not in schema
        and name not in parts
        and not name.startswith(("Page", "UrlPage", "UrlHist"))
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("shape", "field", "word"),
    [
        ("JobStatusAnswer", "status", "cancelled"),
        ("ScanAccepted", "status", "pending"),
        ("BatchStatusAnswer", "status", "processing"),
        ("DomainStatusAnswer", "status", "failed"),
        ("SitemapAnswer", "status", "completed"),
        ("SitemapAnswer", "discovery_method", "robots_txt"),
        ("CandidateAnswer", "verdict", "skipped"),
        ("ScanAnswer", "state", "published"),
        ("AttemptAnswer", "outcome", "snoozed"),
    ],
)
def test_a_word_of_a_closed_set_is_an_enumeration(document, shape: str, field: str, word: str):
    assert word in document["components"]["schemas"][shape]["properties"][field]["enum"]


def test_the_result_of_a_job_has_a_shape_of_its_own(document: dict[str, Any]):
    shapes = document["components"]["schemas"]
    for job in ("JobStatusAnswer", "JobAnswer", "JobDetailAnswer"):
        kinds = shapes[job]["properties"]["result_data"]["anyOf"]
        assert kinds == [{"$ref": "#/components/schemas/ScanResult"}, {"type": "null"}]
    fields = {"domain", "partial", "reasons", "sitemap_count", "sitemaps", "sitemaps_truncated"}
    assert fields <= set(shapes["ScanResult"]["properties"])


def test_an_unusual_result_is_passed_on_as_it_is():
    unusual = {"domain": 7, "sitemaps": "none", "own": True}
    views = TypeAdapter(JobStatusView)
    job = views.validate_python(view_example(JobStatusView) | {"result_data": unusual})
    assert orjson.loads(views.dump_json(job))["result_data"] == unusual


@pytest.mark.parametrize("shape", ["ScanRequest", "BatchRequest"])
def test_no_example_of_a_scan_limits_it(document: dict[str, Any], shape: str):
    examples = document["components"]["schemas"][shape]["examples"]
    assert all("max_pages" not in example for example in examples)


def test_an_empty_page_of_a_search_is_explained(document: dict[str, Any]):
    page = document["components"]["schemas"]["UrlPageAnswer"]
    explained = page["properties"]["examined"]["description"]
    assert "may be empty" in explained
    assert "`next_cursor` is null" in explained


async def test_the_reference_comes_from_this_process_alone(cut_off_client: httpx.AsyncClient):
    page = (await cut_off_client.get("/docs")).text
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert [part for part in parts if not part.startswith(("/static/", "data:"))] == []
    for part in parts:
        if part.startswith("/"):
            assert (await cut_off_client.get(part)).status_code == 200
    assert re.findall(r"<script(?![^>]*src=)|<style|style=|onload=", page) == []
    assert '"/openapi.json"' in (await cut_off_client.get("/static/docs.js")).text


def test_the_copied_files_are_the_published_ones():
    vendor: Path = STATIC / "vendor"
    table = dict(
        re.findall(
            r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$",
            (vendor / "VENDOR.md").read_text(),
            re.MULTILINE,
        )
    )
    files = {
        str(file.relative_to(vendor)): sha256(file.read_bytes()).hexdigest()
        for file in vendor.rglob("*")
        if file.is_file() and file.name != "VENDOR.md"
    }
    assert files == table
