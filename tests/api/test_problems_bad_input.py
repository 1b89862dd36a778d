"""Bad input is refused with problem details, whatever it is: never a 500, never an echo of inside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import ModuleType

import httpx
import orjson
import pytest
from fastapi import FastAPI

from siteatlas.api.limits import BODY_BYTES, RequestBodyLimits
from siteatlas.errors import BodyTooSlow

SCAN = "/api/v3/sitemap/scan"
BATCH = "/api/v3/sitemap/batch/create"
JSON = {"Content-Type": "application/json"}
FIELDS = {"type", "title", "status", "detail", "instance", "code", "request_id"}


def assert_problem(response: httpx.Response, status: int, code: str) -> None:
    problem = response.json()
    assert (response.status_code, problem["code"]) == (status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert set(problem) >= FIELDS
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["type"] == f"urn:siteatlas:error:{code}"


BODIES = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"example.com"',
    "a number": b"7",
    "broken": b'{"base_url": ',
    "two documents": b"{}{}",
    "not a number": b'{"base_url": "example.com", "max_pages": NaN}',
    "infinity": b'{"base_url": "example.com", "max_pages": Infinity}',
    "a huge exponent": b'{"base_url": "example.com", "max_pages": 1e999}',
    "thousands of digits": b'{"base_url": "example.com", "max_pages": ' + b"9" * 5000 + b"}",
    "beyond bigint": b'{"base_url": "example.com", "max_pages": 9223372036854775808}',
    "zero": b'{"base_url": "example.com", "max_pages": 0}',
    "negative": b'{"base_url": "example.com", "max_pages": -1}',
    "above the most": b'{"base_url": "example.com", "max_pages": 50000001}',
    "a fraction": b'{"base_url": "example.com", "max_pages": 1.5}',
    "a whole fraction": b'{"base_url": "example.com", "max_pages": 1.0}',
    "a number in quotes": b'{"base_url": "example.com", "max_pages": "10"}',
    "a truth as number": b'{"base_url": "example.com", "max_pages": true}',
    "a number as truth": b'{"base_url": "example.com", "watch": 1}',
    "a word as truth": b'{"base_url": "example.com", "watch": "yes"}',
    "null as truth": b'{"base_url": "example.com", "watch": null}',
    "an unknown field": b'{"base_url": "example.com", "tenant_id": "x"}',
    "an unknown field with odd signs": b'{"base_url": "example.com", "a/b~\\u0000\\n": 1}',
    "a field twice": b'{"base_url": "example.com", "base_url": "example.org"}',
    "a field twice inside": b'{"base_url": {"a": 1, "a": 2}}',
    "a field twice, once escaped": b'{"base_url": "example.com", "base\\u005furl": "example.org"}',
    "a field twice in a list": b'{"base_url": [{"a": ":"}, {"b": 1, "b": 1}]}',
    "no address": b"{}",
    "null as address": b'{"base_url": null}',
    "a number as address": b'{"base_url": 7}',
    "an object as address": b'{"base_url": {"$ne": ""}}',
    "a list as address": b'{"base_url": ["example.com"]}',
    "latin-1": b'{"base_url": "ex\xe4mple.com"}',
    "utf-16": '{"base_url": "example.com"}'.encode("utf-16"),
    "half a surrogate pair": b'{"base_url": "\\ud800.example.com"}',
    "half a surrogate pair as name": b'{"base_url": "example.com", "\\ud800": 1}',
    "deep lists": b'{"base_url": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "lists as deep as the parser reads": b'{"base_url": ' + b"[" * 1020 + b"]" * 1020 + b"}",
    "deep objects": b'{"a":' * 2500 + b"1" + b"}" * 2500,
}


@pytest.mark.criterion("input-validated")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_bad_body_is_422(cut_off_client: httpx.AsyncClient, body: bytes):
    assert_problem(
        await cut_off_client.post(SCAN, content=body, headers=JSON), 422, "input_invalid"
    )


@pytest.mark.criterion("input-validated")
@pytest.mark.parametrize(
    "base_url",
    [
        "nul\x00.example",
        "\x00",
        "exa\nmple.com",
        "https://",
        "https:///path",
        "http://[::1",
        "http://example.com:99999",
        "javascript:alert(1)",
        "//example.com",
        "..",
        "\u202eexample.com",
        "🦊" * 500,
        "http://1.2.3.4.5",
        "http://0x7f.1",
    ],
)
async def test_a_nasty_address_is_422(cut_off_client: httpx.AsyncClient, base_url: str):
    response = await cut_off_client.post(SCAN, json={"base_url": base_url})
    code = "address_scheme" if base_url.startswith("javascript:") else "address_invalid"
    assert_problem(response, 422, code)
    assert [error["pointer"] for error in response.json()["errors"]] == ["#/base_url"]


async def test_the_values_at_fault_are_named(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post(SCAN, json={"max_pages": "x", "~/": 1})
    errors = {error["pointer"]: error["code"] for error in response.json()["errors"]}
    assert errors == {
        "#/base_url": "missing",
        "#/max_pages": "int_type",
        "#/~0~1": "extra_forbidden",
    }


@pytest.mark.parametrize(
    ("path", "place", "pointer"),
    [
        ("/api/v3/jobs?limit=0", "query", "#/limit"),
        ("/api/v3/jobs?sort=age", "query", "#/sort"),
        ("/api/v3/sitemaps/7", "path", "#/sitemap_id"),
    ],
)
async def test_every_pointer_is_one_into_the_part_that_is_named(
    cut_off_client: httpx.AsyncClient, path: str, place: str, pointer: str
):
    (error,) = (await cut_off_client.get(path)).json()["errors"]
    assert (error["in"], error["pointer"]) == (place, pointer)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v3/jobs?limit=0",
        "/api/v3/jobs?limit=-1",
        "/api/v3/jobs?limit=many",
        "/api/v3/jobs?limit=99999999999999999999",
        "/api/v3/jobs?status=done",
        "/api/v3/jobs?status=%00",
        "/api/v3/jobs?staus=failed",
        "/api/v3/jobs?domain=",
        "/api/v3/jobs?cursor=",
        "/api/v3/jobs?limit=1&limit=x",
        "/api/v3/jobs/1e3",
        "/api/v3/jobs/9223372036854775808",
        "/api/v3/jobs/-9223372036854775809",
        "/api/v3/jobs/%00",
        "/api/v3/jobs/%ff%fe",
        "/api/v3/domains?watched=maybe",
        "/api/v3/sitemaps/%00",
        "/api/v3/sitemap/batch/status/%00",
    ],
)
async def test_a_bad_query_or_path_is_422(cut_off_client: httpx.AsyncClient, path: str):
    assert_problem(await cut_off_client.get(path), 422, "input_invalid")


BAD_NAMES = {
    "%00": "address_invalid",
    "a%00b": "address_invalid",
    "%20": "address_empty",
    "http:": "address_invalid",
    "%ff": "address_invalid",
    "a" * 3000: "input_invalid",
    "127.1": "address_invalid",
}


@pytest.mark.parametrize(("name", "code"), BAD_NAMES.items())
async def test_a_bad_name_of_a_site_is_422(cut_off_client: httpx.AsyncClient, name: str, code: str):
    for path in (f"/api/v3/domains/{name}", f"/api/v3/jobs?domain={name}"):
        assert_problem(await cut_off_client.get(path), 422, code)


async def test_a_search_for_nul_is_422(client: httpx.AsyncClient):
    await client.post("/api/v3/domains", json={"domain": "example.com"})
    response = await client.get("/api/v3/domains/example.com/urls?contains=a%00")
    assert_problem(response, 422, "input_invalid")


@pytest.mark.parametrize("cursor", ["x", "%00", "W10", "bnVsbA", "ÿ", "a" * 2000])
async def test_a_bad_cursor_is_400(cut_off_client: httpx.AsyncClient, cursor: str):
    for path in ("/api/v3/jobs", "/api/v3/domains"):
        assert_problem(await cut_off_client.get(f"{path}?cursor={cursor}"), 400, "cursor_invalid")


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "json",
        "a/b;;=",
    ],
)
async def test_another_content_type_is_415(cut_off_client: httpx.AsyncClient, content_type: str):
    headers = {"Content-Type": content_type} if content_type else {}
    response = await cut_off_client.post(
        SCAN, content=b'{"base_url": "example.com"}', headers=headers
    )
    assert_problem(response, 415, "media_type_unsupported")


async def test_json_with_a_charset_is_welcome(client: httpx.AsyncClient):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    response = await client.post(SCAN, content=b'{"base_url": "example.com"}', headers=headers)
    assert response.status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        b'{"base_url": "example.com:443"}',
        b'{"base_url": "https://example.com/a?b=\\"c\\":d\\\\"}',
        b'{"max_pages": 7, "base_url": "example.com"}',
    ],
)
async def test_a_colon_in_a_value_is_not_a_field(client: httpx.AsyncClient, body: bytes):
    assert (await client.post(SCAN, content=body, headers=JSON)).status_code == 202


async def test_a_body_is_parsed_once(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch):
    body = b'{"base_url": "example.com"}'
    parsers: list[str] = []

    def recorded(module: ModuleType) -> Callable[..., object]:
        parse = module.loads

        def record(text: str | bytes, **options: object) -> object:
            if text in {body, body.decode()}:
                parsers.append(module.__name__)
            return parse(text, **options)

        return record

    for module in (json, orjson):
        monkeypatch.setattr(module, "loads", recorded(module))
    assert (await client.post(SCAN, content=body, headers=JSON)).status_code == 202
    assert parsers == ["orjson"]


async def endless(chunk: bytes, times: int) -> AsyncIterator[bytes]:
    for _ in range(times):
        yield chunk


async def test_a_body_that_announces_too_much_is_413(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post(SCAN, content=b"x" * (BODY_BYTES + 1), headers=JSON)
    assert_problem(response, 413, "payload_too_large")


@pytest.mark.parametrize("length", ["-1", "many", "9" * 30])
async def test_a_length_that_is_none_is_413(cut_off_client: httpx.AsyncClient, length: str):
    headers = JSON | {"Content-Length": length}
    assert_problem(
        await cut_off_client.post(SCAN, content=b"{}", headers=headers), 413, "payload_too_large"
    )


async def test_a_body_without_a_length_is_413_once_it_is_too_much(
    cut_off_client: httpx.AsyncClient,
):
    response = await cut_off_client.post(SCAN, content=endless(b"x" * 1024, 10_000), headers=JSON)
    assert_problem(response, 413, "payload_too_large")


async def test_a_batch_may_be_larger_up_to_its_own_limit(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post(BATCH, content=endless(b"[" * 1024, 1025), headers=JSON)
    assert_problem(response, 413, "payload_too_large")
    response = await cut_off_client.post(BATCH, content=endless(b"[" * 1024, 1000), headers=JSON)
    assert_problem(response, 422, "input_invalid")


async def test_headers_beyond_reason_are_431(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.get("/health", headers={"X-Long": "x" * 40_000})
    assert_problem(response, 431, "headers_too_large")


async def test_a_body_that_never_ends_is_given_up():
    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"", "more_body": True}

    limits = RequestBodyLimits(FastAPI(), larger={}, seconds=0.1)
    scope = {"type": "http", "method": "POST", "path": SCAN, "headers": []}
    with pytest.raises(BodyTooSlow):
        await limits(scope, receive, lambda _message: asyncio.sleep(0))


@pytest.mark.parametrize("path", ["/nothing", "/api/v3/", "/api/v3/jobs/", "/api/v3/api/v3/jobs"])
async def test_an_unknown_path_is_404(cut_off_client: httpx.AsyncClient, path: str):
    assert_problem(await cut_off_client.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", SCAN, "POST"),
        ("PUT", "/api/v3/domains/example.com", "DELETE, GET, PATCH"),
        ("DELETE", "/api/v3/domains", "GET, POST"),
        ("POST", "/health", "GET"),
        ("OPTIONS", "/api/v3/jobs", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_know_is_405(
    cut_off_client: httpx.AsyncClient, method: str, path: str, allowed: str
):
    response = await cut_off_client.request(method, path)
    assert_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed
