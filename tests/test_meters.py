"""The durations that a process measures: failures included, one series per bucket."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from siteatlas.meters import Meters


def observed(histogram: Histogram) -> dict[str, float]:
    """The samples by name, those of buckets by their upper bound."""
    samples = (sample for one in histogram.collect() for sample in one.samples)
    return {one.labels.get("le", one.name.rpartition("_")[2]): one.value for one in samples}


def test_a_write_that_fails_is_measured():
    counted = Meters()
    with pytest.raises(ValueError, match="refused"), counted.timed_write():
        raise ValueError("refused")
    assert observed(counted.write_duration)["count"] == 1


async def test_a_claim_that_fails_is_measured():
    counted = Meters()
    with pytest.raises(ValueError, match="refused"):
        async with counted.timed_claim():
            raise ValueError("refused")
    assert observed(counted.claim_duration)["count"] == 1


def test_a_duration_falls_into_every_bucket_from_its_own_on():
    counted = Meters()
    counted.fetch_duration.observe(7.5)
    found = observed(counted.fetch_duration)
    assert (found["5.0"], found["10.0"], found["300.0"], found["+Inf"]) == (0, 1, 1, 1)
    assert (found["count"], found["sum"]) == (1, 7.5)


def test_no_series_contains_the_creation_time_of_a_metric():
    counted = Meters()
    counted.observe_request("GET", "/health", "2xx", 0.01)
    registry = CollectorRegistry()
    registry.register(counted.requests)
    registry.register(counted.request_duration)
    page = generate_latest(registry).decode()
    assert 'siteatlas_http_requests_total{method="GET",route="/health",status="2xx"} 1.0\n' in page
    assert "_created" not in page
