"""Probes of a worker: health by its heartbeat, and a port for each process."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pytest

from siteatlas.cli.hosting.connections import listen
from siteatlas.cli.hosting.workers import port_of, probe_listener, probes
from siteatlas.errors import ConfigurationError, PortTaken
from siteatlas.meters import meters
from siteatlas.settings import Settings

ON = Settings(metrics_port=0, lease_seconds=4)


async def ask(path: str) -> tuple[int, str]:
    with probe_listener(ON) as listener:
        assert listener is not None
        async with probes(ON, listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("beat_at", [None, "now"])
async def test_a_worker_is_healthy_before_its_first_heartbeat_and_after_a_recent_one(
    beat_at: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(meters, "heartbeat_at", time.monotonic() if beat_at else None)
    # Other tests of this process may have polled long ago.
    monkeypatch.setattr(meters, "polled_at", None)
    status, body = await ask("/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")


async def test_a_worker_whose_heartbeat_stopped_is_unhealthy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meters, "heartbeat_at", time.monotonic() - 95)
    status, body = await ask("/health")
    told = json.loads(body)
    assert (status, told["status"]) == (503, "stale")
    assert told["heartbeat_age_seconds"] > told["heartbeat_limit_seconds"] == 94


async def test_a_worker_whose_poll_stopped_is_unhealthy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meters, "heartbeat_at", time.monotonic())
    monkeypatch.setattr(meters, "polled_at", time.monotonic() - 305)
    status, body = await ask("/health")
    told = json.loads(body)
    assert (status, told["status"]) == (503, "stale")
    assert told["poll_age_seconds"] > told["poll_limit_seconds"] == 304


async def test_the_metrics_are_those_of_this_process_without_a_database():
    status, body = await ask("/metrics")
    assert status == 200
    assert f"siteatlas_claims_total {float(meters.claims)}\n" in body
    assert 'siteatlas_pool_connections{kind="size"} 0.0\n' in body
    assert "process_resident_memory_bytes " in body or sys.platform != "linux"
    assert "siteatlas_jobs{" not in body


def test_each_process_has_the_next_port():
    settings = Settings(metrics_port=9100)
    assert [port_of(settings, number, 3) for number in range(3)] == [9100, 9101, 9102]
    assert [port_of(ON, number, 2) for number in range(2)] == [0, 0]
    assert port_of(Settings(), 1, 2) is None


def test_ports_beyond_the_highest_are_refused():
    with pytest.raises(ConfigurationError, match=r"65535 to 65536.*lower --metrics-port"):
        port_of(Settings(metrics_port=65535), 0, 2)


def test_a_port_in_use_and_a_name_are_refused_with_a_message():
    with listen("localhost", 0) as listener:
        taken = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{taken}"):
            listen("127.0.0.1", taken)
    with pytest.raises(ConfigurationError, match=r"^example\.com ") as refused:
        listen("example.com", 0)
    assert not isinstance(refused.value, PortTaken)
