"""Problem details: what a failed request is answered with, on an application without a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict

from siteatlas.access.identity import RequestKey
from siteatlas.api.problems import (
    MAX_FIELD_ERRORS,
    MAX_POINTER_CHARS,
    MEDIA_TYPE,
    FieldRefused,
    install_problem_handlers,
    problem,
    unexpected,
)
from siteatlas.errors import (
    AddressError,
    ConfigurationError,
    DatabaseUnavailable,
    InputError,
    NotFoundError,
    RequestMalformed,
    SiteatlasError,
    error_classes,
)

RAISED: dict[str, Exception] = {
    "missing": NotFoundError("There is no job 7."),
    "database": DatabaseUnavailable(),
    "field": FieldRefused(("#/base_url", AddressError())),
    "fields": FieldRefused(*[("#/x", InputError())] * 150, detail="Several values are wrong."),
    "configuration": ConfigurationError("A secret path."),
}


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    install_problem_handlers(app)

    @app.get("/raise/{name}")
    async def raise_it(name: str, limit: Annotated[int, Query(ge=1)] = 1) -> None:
        raise RAISED[name]

    @app.post("/bodies")
    async def take(body: Body) -> None: ...

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.mark.parametrize("cls", dict.fromkeys(error_classes()), ids=lambda cls: cls.__name__)
def test_every_error_has_a_whole_answer(cls: type[SiteatlasError]):
    scope = {"raw_path": b"/api/v3/jobs/%ff", RequestKey.request_id: "r-1"}
    answer = problem(scope, cls())
    assert (answer.status_code, answer.media_type) == (cls.http_status, MEDIA_TYPE)
    body = httpx.Response(200, content=bytes(answer.body)).json()
    assert (body["code"], body["type"]) == (cls.code, f"urn:siteatlas:error:{cls.code}")
    assert (body["status"], body["request_id"]) == (cls.http_status, "r-1")
    assert body["instance"] == "/api/v3/jobs/%ff"
    assert body["title"]
    assert body["detail"]


def test_the_title_is_that_of_the_error_and_the_detail_that_of_the_case():
    body = httpx.Response(200, content=bytes(problem({}, NotFoundError("No job 7.")).body)).json()
    assert body["title"] == NotFoundError().message
    assert body["detail"] == "No job 7."


def test_only_an_error_that_passes_says_when_to_come_back():
    assert int(problem({}, DatabaseUnavailable()).headers["retry-after"]) > 0
    assert "retry-after" not in problem({}, InputError()).headers


def test_a_request_whose_end_is_unknown_closes_the_connection():
    assert problem({}, RequestMalformed()).headers["connection"] == "close"
    assert "connection" not in problem({}, InputError()).headers


def test_what_broke_inside_is_not_shown():
    answer = unexpected({})
    assert answer.status_code == 500
    assert httpx.Response(200, content=bytes(answer.body)).json()["code"] == SiteatlasError.code


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("missing", 404, NotFoundError.code),
        ("database", 503, DatabaseUnavailable.code),
        ("field", 422, AddressError.code),
        ("fields", 422, InputError.code),
    ],
)
async def test_a_route_that_raises_is_answered_with_the_code(client, name, status, code):
    answer = await client.get(f"/raise/{name}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == MEDIA_TYPE


async def test_a_refused_field_is_named_with_its_place(client):
    (error,) = (await client.get("/raise/field")).json()["errors"]
    assert (error["in"], error["pointer"], error["code"]) == (
        "body",
        "#/base_url",
        AddressError.code,
    )


async def test_the_list_of_refused_fields_is_limited(client):
    body = (await client.get("/raise/fields")).json()
    assert len(body["errors"]) == MAX_FIELD_ERRORS
    assert body["code"] == InputError.code


async def test_an_error_of_our_own_set_up_is_not_for_the_client(client):
    with pytest.raises(ConfigurationError):
        await client.get("/raise/configuration")


async def test_values_that_fail_validation_are_named_with_their_part(client):
    query = (await client.get("/raise/missing?limit=0")).json()["errors"]
    body = (await client.post("/bodies", json={"number": "x", "~/": 1})).json()["errors"]
    assert [(one["in"], one["pointer"]) for one in query] == [("query", "#/limit")]
    assert {one["pointer"] for one in body} == {"#/number", "#/~0~1"}


async def test_a_pointer_to_a_long_name_is_truncated(client):
    answer = await client.post("/bodies", json={"number": 1, "x" * 5000: 1})
    (error,) = answer.json()["errors"]
    assert len(error["pointer"]) == MAX_POINTER_CHARS


async def test_an_unknown_path_is_not_found(client):
    answer = await client.get("/nowhere")
    assert (answer.status_code, answer.json()["code"]) == (404, NotFoundError.code)


async def test_a_wrong_method_names_those_that_the_path_knows(client):
    answer = await client.delete("/bodies")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
