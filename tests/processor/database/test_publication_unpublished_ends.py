"""The end of an attempt without a published scan: the job is locked last, and only by its holder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import select

from siteatlas.errors import LeaseLost
from siteatlas.processor.publication import record_cancellation, record_failure, return_to_queue
from siteatlas.queue.fence import Claim, heartbeat
from siteatlas.queue.operator_actions import cancel
from siteatlas.storage.models import Scan, SitemapScan
from siteatlas.storage.session import get_background_session
from tests.fixtures.database import is_lock_awaited, transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.queue import (
    LEASE,
    change,
    job_of,
    let_lease_expire,
    rescue_all,
    submit,
    take_one,
)
from tests.fixtures.records import add_unfinished_scan
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


End = Callable[[Claim], Coroutine[Any, Any, object]]


async def failure(claim: Claim) -> object:
    return await record_failure(claim, code="no_sitemap", message="None.", transient=False)


async def cancelled_return(claim: Claim) -> object:
    await change(claim.id, cancel_requested_at=claim.created_at)
    return await return_to_queue(claim)


ENDS = [failure, record_cancellation, cancelled_return]


async def running_job() -> Claim:
    """A claimed job whose scan has begun to read a document."""
    submitted = await submit("example.com")
    async with transaction() as session:
        await add_unfinished_scan(session, submitted.id)
    return await take_one()


@asynccontextmanager
async def locked_rows() -> AsyncIterator[None]:
    """Somebody else holds the rows that the end of the scan has to write."""
    async with get_background_session() as other, other.begin():
        await other.execute(select(SitemapScan).with_for_update())
        yield


@pytest.mark.parametrize("end", ENDS)
async def test_the_lease_can_be_renewed_while_the_scan_is_being_closed(
    end: End,
) -> None:
    claim = await running_job()
    async with locked_rows():
        ending = asyncio.create_task(end(claim))
        await wait_until(is_lock_awaited)
        async with asyncio.timeout(2), get_background_session() as session, session.begin():
            assert (await heartbeat(session, [claim], LEASE))[0] == {claim.id}
    await ending
    assert (await job_of(claim.id)).status in {"failed", "cancelled"}


@pytest.mark.parametrize("end", [failure, record_cancellation])
async def test_a_worker_that_lost_its_job_does_not_close_the_scan_of_the_new_holder(
    end: End,
) -> None:
    lost = await running_job()
    await let_lease_expire(lost.id)
    await rescue_all()
    await take_one("worker-b")
    with pytest.raises(LeaseLost):
        await end(lost)
    assert [scan.state for scan in await rows_of(Scan)] == ["running"]
    assert [row.state for row in await rows_of(SitemapScan)] == ["pending"]


@pytest.mark.parametrize("end", [failure, record_cancellation])
async def test_a_worker_that_loses_its_job_while_it_closes_the_scan_rolls_that_back(
    end: End,
) -> None:
    lost = await running_job()
    async with locked_rows():
        ending = asyncio.create_task(end(lost))
        await wait_until(is_lock_awaited)
        await let_lease_expire(lost.id)
        await rescue_all()
        new = await take_one("worker-b")
    with pytest.raises(LeaseLost):
        await ending
    assert [scan.state for scan in await rows_of(Scan)] == ["running"]
    assert [row.state for row in await rows_of(SitemapScan)] == ["pending"]
    assert (await job_of(new.id)).worker_id == "worker-b"


async def test_a_cancel_that_comes_while_a_failed_scan_is_closed_counts_for_both() -> None:
    claim = await running_job()
    async with locked_rows():
        ending = asyncio.create_task(failure(claim))
        await wait_until(is_lock_awaited)
        async with transaction() as session:
            assert await cancel(session, claim.id) == "processing"
    assert await ending == "cancelled"
    assert [scan.state for scan in await rows_of(Scan)] == ["cancelled"]
    assert (await job_of(claim.id)).status == "cancelled"
