"""When the scheduler ticks next, as far as its processes have reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from siteatlas.cli.commands.scheduler import scheduler_state
from siteatlas.queue.fence import WorkerReport, report_worker
from tests.fixtures.database import transaction

pytestmark = pytest.mark.usefixtures("database")


async def test_the_next_tick_is_not_in_the_past() -> None:
    last = datetime.now(UTC) - timedelta(seconds=14)
    coming = last + timedelta(seconds=6)
    async with transaction() as session:
        report = WorkerReport(str(uuid4()), "host", 1, "0", 1, 0, last, coming)
        await report_worker(session, report)
    state = await scheduler_state()
    assert state.next_tick_at is not None
    assert (state.next_tick_at - last) % timedelta(seconds=6) == timedelta()
    assert state.next_tick_at >= last + timedelta(seconds=18)
