"""The system's resolver is asked from threads of its own, and fails in our words."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from siteatlas.errors import DnsError, DnsNameUnknown
from siteatlas.net import resolver as resolver_module
from siteatlas.net.resolver import LOOKUP_THREADS, LookupThreads, SystemResolver


async def test_a_local_name_has_its_addresses():
    found = await SystemResolver().addresses("localhost")
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found)) > 0


@pytest.mark.parametrize(
    ("code", "error"),
    [(socket.EAI_NONAME, DnsNameUnknown), (socket.EAI_AGAIN, DnsError)],
)
async def test_a_failed_lookup_says_whether_the_name_exists(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[DnsError]
):
    def fail(*arguments: object, **options: object) -> None:
        raise socket.gaierror(code, "no")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(DnsError) as caught:
        await SystemResolver().addresses("example.com")
    assert type(caught.value) is error


async def test_hanging_lookups_do_not_pile_up_threads(monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()
    threads = LookupThreads(LOOKUP_THREADS)
    asked: list[str] = []

    def hang(host: str) -> list[str]:
        asked.append(host)
        release.wait(5)
        return ["1.1.1.1"]

    monkeypatch.setattr(resolver_module, "_look_up", hang)
    monkeypatch.setattr(resolver_module, "_lookup_threads", lambda: threads)
    lookups = [SystemResolver().addresses(f"h{n}.example.com") for n in range(20)]
    before = threading.active_count()
    results = await asyncio.gather(
        *(asyncio.wait_for(lookup, 0.2) for lookup in lookups), return_exceptions=True
    )
    assert all(isinstance(result, TimeoutError) for result in results)
    assert threading.active_count() == before
    release.set()
    assert await SystemResolver().addresses("last.example.com") == ["1.1.1.1"]
    assert len(asked) == LOOKUP_THREADS + 1
