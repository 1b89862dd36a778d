"""Requests are counted by route template and status class, and clients cannot add series."""

from __future__ import annotations

import httpx
from prometheus_client import CollectorRegistry

from siteatlas.api.routers.health import MAX_METRICS_CHARS
from siteatlas.meters import Meters, meters

COUNTED = "siteatlas_http_requests_total"
TIMED = "siteatlas_http_request_duration_seconds"
SITE = "/api/v3/domains/{domain}"


def count(method: str, route: str, status: str) -> float:
    labels = {"method": method, "route": route, "status": status}
    return _registry(meters).get_sample_value(COUNTED, labels) or 0.0


def timed(method: str, route: str) -> float:
    labels = {"method": method, "route": route}
    return _registry(meters).get_sample_value(f"{TIMED}_count", labels) or 0.0


def _registry(counted: Meters) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(counted.requests)
    registry.register(counted.request_duration)
    return registry


def label_sets() -> set[tuple[str, str]]:
    found = (sample.labels for one in meters.requests.collect() for sample in one.samples)
    return {(labels["method"], labels["route"]) for labels in found}


async def test_a_request_is_counted_by_its_route_template(cut_off_client: httpx.AsyncClient):
    before = count("GET", SITE, "5xx"), timed("GET", SITE)
    for site in ("one.example", "two.example"):
        assert (await cut_off_client.get(f"/api/v3/domains/{site}")).status_code == 503
    assert (count("GET", SITE, "5xx"), timed("GET", SITE)) == (before[0] + 2, before[1] + 2)


async def test_a_head_request_counts_as_get(cut_off_client: httpx.AsyncClient):
    before = count("GET", "/docs", "2xx")
    assert (await cut_off_client.head("/docs")).status_code == 200
    assert count("GET", "/docs", "2xx") == before + 1


async def test_a_request_that_is_refused_before_routing_is_counted(
    cut_off_client: httpx.AsyncClient,
):
    before = count("other", "other", "4xx")
    refused = await cut_off_client.get("/docs", headers={"Host": "evil.example"})
    assert refused.status_code >= 400
    assert count("other", "other", "4xx") == before + 1


async def test_paths_and_methods_that_no_route_declares_add_no_series(
    cut_off_client: httpx.AsyncClient,
):
    await cut_off_client.get("/nothing-0")
    known = label_sets()
    assert ("other", "other") in known
    for number in range(1, 20):
        await cut_off_client.get(f"/nothing-{number}")
        await cut_off_client.get(f"/static/nothing-{number}")
        await cut_off_client.request(f"METHOD{number}", "/metrics")
        await cut_off_client.put(f"/api/v3/domains/site-{number}.example")
    assert label_sets() == known


async def test_the_page_stays_below_its_documented_size_when_every_operation_was_called(
    cut_off_client: httpx.AsyncClient,
):
    paths = (await cut_off_client.get("/openapi.json")).json()["paths"]
    for path, operations in paths.items():
        for method in operations:
            await cut_off_client.request(method, path.replace("{", "").replace("}", ""))
    operations = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    page = await cut_off_client.get("/metrics")
    assert operations <= label_sets()
    assert len(page.text) < MAX_METRICS_CHARS
