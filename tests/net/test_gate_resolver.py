"""Names are resolved concurrently, and failures raise our own errors."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest

from siteatlas.errors import DnsError, DnsNameUnknown
from siteatlas.net import gate as resolver_module
from siteatlas.net.gate import MAX_DEAD_NAMES, DnsResolver
from tests.fixtures.dns_server import DnsServer
from tests.fixtures.timings import measured

SITE = "site.example.com"
PUBLIC = "93.184.215.14"


async def test_a_local_name_has_its_addresses():
    found = await DnsResolver().addresses("localhost")
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found)) > 0


async def test_a_name_has_all_addresses_of_both_families():
    async with DnsServer({SITE: (PUBLIC, "93.184.215.15", "2606:2800::1")}) as server:
        found = await DnsResolver([server.entry]).addresses(SITE)
    assert sorted(found) == ["2606:2800::1", PUBLIC, "93.184.215.15"]


async def test_a_name_that_does_not_exist_is_reported_as_unknown():
    async with DnsServer({"empty.example.com": ()}) as server:
        resolver = DnsResolver([server.entry])
        for name in ("nowhere.example.com", "empty.example.com"):
            with pytest.raises(DnsNameUnknown):
                await resolver.addresses(name)


async def test_a_failing_name_server_says_nothing_about_the_name():
    async with DnsServer() as server:
        with pytest.raises(DnsError) as caught:
            await DnsResolver([server.entry]).addresses("a.broken.test")
    assert type(caught.value) is DnsError


async def test_an_unreachable_name_server_is_an_error_of_the_lookup():
    with pytest.raises(DnsError) as caught:
        await DnsResolver(["127.0.0.1:1"]).addresses(SITE)
    assert type(caught.value) is DnsError


async def test_silent_name_servers_delay_nobody_else():
    async with DnsServer({SITE: (PUBLIC,)}) as server:
        resolver = DnsResolver([server.entry])
        names = [f"n{number}.silent.test" for number in range(100)]
        silent = [asyncio.create_task(resolver.addresses(name)) for name in names]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1):
            assert await resolver.addresses(SITE) == [PUBLIC]
        for task in silent:
            task.cancel()
        await asyncio.gather(*silent, return_exceptions=True)


async def test_a_silent_name_is_given_up_and_not_asked_for_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(resolver_module, "LOOKUP_SECONDS", 0.2)
    async with DnsServer() as server:
        resolver = DnsResolver([server.entry])
        with pytest.raises(DnsError):
            await resolver.addresses("a.silent.test")
        asked, since = len(server.asked), time.monotonic()
        with pytest.raises(DnsError):
            await resolver.addresses("a.silent.test")
    assert len(server.asked) == asked > 0
    measured(time.monotonic() - since, 0.1)


@pytest.mark.slow
async def test_a_silent_name_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resolver_module, "LOOKUP_SECONDS", 0.1)
    monkeypatch.setattr(resolver_module, "DEAD_SECONDS", 0.1)
    async with DnsServer() as server:
        resolver = DnsResolver([server.entry])
        with pytest.raises(DnsError):
            await resolver.addresses("a.silent.test")
        asked = len(server.asked)
        await asyncio.sleep(0.15)
        with pytest.raises(DnsError):
            await resolver.addresses("a.silent.test")
    assert len(server.asked) == 2 * asked > 0


async def test_only_so_many_silent_names_are_remembered():
    resolver = DnsResolver()
    for number in range(2 * MAX_DEAD_NAMES):
        resolver._remember_dead_name(f"n{number}.silent.test")
    assert len(resolver._dead_until) <= MAX_DEAD_NAMES


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.slow
async def test_a_cancelled_lookup_leaves_no_socket_behind():
    async with DnsServer() as server:
        resolver = DnsResolver([server.entry])
        before = open_files()
        tasks = [asyncio.create_task(resolver.addresses(f"n{n}.silent.test")) for n in range(20)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gc.collect()
        await asyncio.sleep(0.2)
        after = open_files()
    assert after <= before + 2


PROGRAM = """
import asyncio
import socket
from siteatlas.net.gate import DnsResolver

async def main(port):
    asyncio.create_task(DnsResolver([f"127.0.0.1:{port}"]).addresses("x.silent.test"))
    await asyncio.sleep(0.1)

with socket.socket(type=socket.SOCK_DGRAM) as silent:
    silent.bind(("127.0.0.1", 0))
    asyncio.run(main(silent.getsockname()[1]))
    assert silent.recv(512)
"""


def test_a_process_ends_quietly_with_lookups_under_way():
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM], capture_output=True, timeout=30, check=True
    )
    assert ended.stderr == b""
