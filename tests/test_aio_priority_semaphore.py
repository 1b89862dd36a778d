"""PrioritySemaphore for jobs: limited, interactive ones first, none lost by those who stop waiting."""

from __future__ import annotations

import asyncio

from siteatlas.aio import MAX_IN_A_ROW, PrioritySemaphore, interactive_job


async def line_up(
    places: PrioritySemaphore, names: str, served: list[str], **kind: bool
) -> list[asyncio.Task[None]]:
    """One waiting task for each letter."""

    async def wait(name: str) -> None:
        async with places:
            served.append(name)

    with interactive_job(kind.get("interactive", False)):
        tasks = [asyncio.create_task(wait(name)) for name in names]
    await asyncio.sleep(0)
    return tasks


async def order_of(others: str, interactive: str) -> str:
    """The order in which jobs are served that wait for one place."""
    places, served = PrioritySemaphore(1), list[str]()
    async with places:
        tasks = await line_up(places, others, served)
        tasks += await line_up(places, interactive, served, interactive=True)
    await asyncio.gather(*tasks)
    return "".join(served)


async def test_interactive_jobs_come_before_others_and_each_kind_in_its_order():
    assert await order_of("abc", interactive="XY") == "XYabc"


async def test_many_interactive_jobs_leave_a_turn_to_others():
    assert await order_of("ab", interactive="ABCDEFGHIJ") == "ABCDaEFGHbIJ"
    assert len("ABCD") == MAX_IN_A_ROW


async def test_no_more_are_let_in_than_there_are_places():
    places, inside, most = PrioritySemaphore(3), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with places:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert (most, inside) == (3, 0)


async def test_who_stops_waiting_takes_no_place_with_him():
    places, served = PrioritySemaphore(1), list[str]()
    async with places:
        before, at_once = await line_up(places, "ab", served)
        before.cancel()
    # The second has been given the place and is cancelled before it notices.
    at_once.cancel()
    await asyncio.gather(before, at_once, return_exceptions=True)
    async with asyncio.timeout(1), places:
        assert served == []
