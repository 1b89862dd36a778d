"""Hosts get few requests at a time, pauses between them, and rest after failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from ipaddress import ip_network
from itertools import pairwise

import pytest

from siteatlas.errors import ConnectionFailed, RateLimited
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import (
    CONNECTIONS_PER_ADDRESS,
    MAX_IDLE_HOSTS,
    OWN_CONNECTIONS,
    Politeness,
)
from tests.fixtures.timings import measured

SITE = parse_url("http://example.com/")
OTHER = parse_url("http://other.example.com/")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def most_at_once(politeness: Politeness, *, own: bool = False, requests: int = 40) -> int:
    running = most = 0

    async def request() -> None:
        nonlocal running, most
        async with politeness.slot(SITE, own):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(request() for _ in range(requests)))
    return most


@pytest.mark.criterion("load-bounded")
async def test_a_host_gets_only_so_many_requests_at_a_time():
    assert await most_at_once(Politeness(0, 3)) == 3


async def test_an_own_host_gets_more():
    assert await most_at_once(Politeness(5, 1), own=True) == OWN_CONNECTIONS


async def test_an_own_host_gets_no_more_when_it_is_not_exempt():
    politeness = Politeness(0, 3, exempt_own=False)
    assert await most_at_once(politeness, own=True) == 3


async def test_a_host_that_is_not_exempt_has_one_record_whether_own_or_not():
    clock = Clock()
    politeness = Politeness(0.5, 2, exempt_own=False, clock=clock)
    politeness.pause(SITE, 60, own=True)
    with pytest.raises(RateLimited):
        async with politeness.slot(SITE):
            pytest.fail("the pause was forgotten")
    clock.now += 60
    for own in (True, False, True, False, True):
        politeness.record(SITE, ok=False, own=own)
    with pytest.raises(ConnectionFailed):
        async with politeness.slot(SITE, own=True):
            pytest.fail("five failures were not counted together")


async def test_requests_to_one_host_start_apart():
    politeness = Politeness(0.05, 5)
    begin = time.monotonic()
    started: list[float] = []

    async def request() -> None:
        async with politeness.slot(SITE):
            started.append(time.monotonic())

    await asyncio.gather(*(request() for _ in range(4)))
    assert all(moment - begin > 0.05 * number - 0.005 for number, moment in enumerate(started))


async def test_another_host_or_port_does_not_wait():
    politeness = Politeness(30, 1)
    other_port = parse_url("http://example.com:8080/")
    started: list[WebAddress] = []
    async with asyncio.timeout(1):
        for address in (SITE, OTHER, other_port):
            async with politeness.slot(address):
                started.append(address)
    assert started == [SITE, OTHER, other_port]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), politeness.slot(SITE):
            started.append(SITE)
    assert len(started) == 3


async def test_a_crawl_delay_is_obeyed():
    politeness = Politeness(0, 2)
    politeness.set_crawl_delay(SITE, 0.1)
    async with politeness.slot(SITE):
        started = time.monotonic()
    async with politeness.slot(SITE):
        assert time.monotonic() - started > 0.09


async def test_a_crawl_delay_has_an_upper_and_a_lower_end():
    politeness = Politeness(0.5, 2)
    politeness.set_crawl_delay(SITE, 86_400)
    politeness.set_crawl_delay(OTHER, 0.01)
    assert politeness._host(SITE, own=False).delay == 30
    assert politeness._host(OTHER, own=False).delay == 0.5


async def rests(politeness: Politeness) -> bool:
    try:
        async with politeness.slot(SITE):
            return False
    except ConnectionFailed:
        return True


@pytest.mark.criterion("failures-isolated")
async def test_five_failures_in_a_row_let_a_host_rest():
    politeness = Politeness(0, 2, clock=Clock())
    for _ in range(5):
        async with politeness.slot(SITE):
            politeness.record(SITE, ok=False)
    with pytest.raises(ConnectionFailed):
        async with politeness.slot(SITE):
            pass
    async with politeness.slot(OTHER):
        pass


async def test_a_success_in_between_starts_the_count_again():
    politeness = Politeness(0, 2)
    for ok in (False, False, False, False, True, False, False):
        politeness.record(SITE, ok)
    assert not await rests(politeness)
    for _ in range(3):
        politeness.record(SITE, ok=False)
    assert await rests(politeness)


async def test_the_rest_doubles_up_to_a_quarter_of_an_hour():
    clock = Clock()
    politeness = Politeness(0, 2, clock=clock)
    for _ in range(4):
        politeness.record(SITE, ok=False)
    for seconds in (60, 120, 240, 480, 900, 900):
        politeness.record(SITE, ok=False)
        clock.now += seconds - 1
        assert await rests(politeness)
        clock.now += 2
        assert not await rests(politeness)


async def test_failures_that_come_in_during_the_rest_do_not_lengthen_it():
    clock = Clock()
    politeness = Politeness(0, 2, clock=clock)
    for _ in range(12):
        politeness.record(SITE, ok=False)
    clock.now += 61
    assert not await rests(politeness)


async def test_a_cancelled_wait_gives_its_place_back():
    politeness = Politeness(0, 1)
    async with politeness.slot(SITE):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), politeness.slot(SITE):
                    pass
    politeness.set_crawl_delay(SITE, 30)
    async with politeness.slot(SITE):
        pass
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), politeness.slot(SITE):
            pass
    assert politeness._host(SITE, own=False).users == 0
    assert not politeness._host(SITE, own=False).free.locked()


@pytest.mark.slow
async def test_hosts_out_of_use_are_forgotten():
    politeness = Politeness(0, 2)
    async with politeness.slot(SITE):
        for number in range(2 * MAX_IDLE_HOSTS):
            politeness.record(parse_url(f"http://h{number}.example.com/"), ok=True)
        assert len(politeness._hosts) <= MAX_IDLE_HOSTS
        assert (SITE.host, SITE.port, False) in politeness._hosts


async def starts(politeness: Politeness, names: int, ips: Sequence[str]) -> list[float]:
    begin = time.monotonic()

    async def request(number: int) -> float:
        address = parse_url(f"http://h{number}.example.com/")
        async with politeness.slot(address, ips=[ips[number % len(ips)]]):
            return time.monotonic() - begin

    return sorted(await asyncio.gather(*map(request, range(names))))


async def test_names_on_one_address_share_its_starts():
    started = await starts(Politeness(0.2, 2), 6, ["192.0.2.1"])
    assert all(moment > number * 0.05 - 0.005 for number, moment in enumerate(started))


async def test_an_address_of_a_range_has_the_rate_of_the_first_range_that_it_is_in():
    ranges = [(ip_network("192.0.2.0/28"), 20.0), (ip_network("192.0.2.0/24"), 0.01)]
    politeness = Politeness(30, 2, address_rates=ranges)
    started = await starts(politeness, 6, ["192.0.2.1"])
    assert all(moment > number * 0.05 - 0.005 for number, moment in enumerate(started))
    measured(started[-1], 1)
    assert politeness._address("192.0.2.200").delay == 100
    assert politeness._address("2001:db8::/64").delay == 7.5


async def test_the_address_of_a_host_is_the_lowest_one_that_its_last_request_could_reach():
    politeness = Politeness(0, 2)
    assert politeness.network_of(SITE) is None
    async with politeness.slot(SITE, ips=["2001:db8::1", "192.0.2.2", "192.0.2.1"]):
        assert politeness.network_of(SITE) == "192.0.2.1"
    async with politeness.slot(SITE, ips=["2001:db8::1"]):
        assert politeness.network_of(SITE) == "2001:db8::/64"
    assert politeness.network_of(OTHER) is None


async def test_names_on_several_addresses_do_not_wait_for_each_other():
    started = await starts(Politeness(30, 1), 4, [f"192.0.2.{number}" for number in range(4)])
    measured(started[-1], 1)


async def test_addresses_of_one_ipv6_network_count_as_one():
    started = await starts(Politeness(0.4, 2), 3, ["2001:db8::1", "2001:db8::2:1", "2001:db8::3"])
    assert started[-1] > 0.19


async def test_names_on_one_address_share_its_connections():
    politeness, running, most = Politeness(0, 1), 0, 0

    async def request(number: int) -> None:
        nonlocal running, most
        address = parse_url(f"http://h{number}.example.com/")
        async with politeness.slot(address, ips=["192.0.2.1", "192.0.2.2"]):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*map(request, range(40)))
    assert most == CONNECTIONS_PER_ADDRESS


async def test_a_host_that_waits_for_its_own_turn_keeps_nobody_from_the_address():
    politeness = Politeness(0, 1)
    slow = [parse_url(f"http://slow{n}.example.com/") for n in range(2 * CONNECTIONS_PER_ADDRESS)]
    for address in slow:
        politeness.set_crawl_delay(address, 30)
        async with politeness.slot(address, ips=["192.0.2.1"]):
            pass

    async def request(address: WebAddress) -> None:
        async with politeness.slot(address, ips=["192.0.2.1"]):
            pass

    waiting = [asyncio.create_task(request(address)) for address in slow]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1):
        await request(SITE)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert all(not host.users for host in politeness._hosts.values())


@pytest.mark.slow
async def test_a_delay_of_the_host_holds_after_a_wait_for_the_address():
    politeness = Politeness(0.1, 2)
    started: list[float] = []

    async def request() -> None:
        async with politeness.slot(SITE, ips=["192.0.2.1"]):
            started.append(time.monotonic())

    politeness._address("192.0.2.1").next_start = time.monotonic() + 0.3
    await asyncio.gather(*(request() for _ in range(4)))
    assert all(later - sooner > 0.095 for sooner, later in pairwise(started))
