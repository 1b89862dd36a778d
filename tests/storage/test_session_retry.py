"""A decorated transaction is repeated while the database is busy, and only then."""

from __future__ import annotations

import pytest

from siteatlas.errors import DatabaseBusy, DatabaseUnavailable
from siteatlas.storage import session as retry
from siteatlas.storage.session import TRIES, retry_when_busy


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)


async def test_a_busy_transaction_is_repeated_with_the_same_arguments() -> None:
    calls: list[tuple[int, str]] = []

    @retry_when_busy
    async def transaction(number: int, *, text: str) -> str:
        calls.append((number, text))
        if len(calls) < TRIES:
            raise DatabaseBusy
        return "done"

    assert await transaction(1, text="a") == "done"
    assert calls == [(1, "a")] * TRIES


async def test_a_transaction_that_stays_busy_fails_after_the_last_try() -> None:
    calls: list[None] = []

    @retry_when_busy
    async def transaction() -> None:
        calls.append(None)
        raise DatabaseBusy

    with pytest.raises(DatabaseBusy):
        await transaction()
    assert len(calls) == TRIES


async def test_another_error_is_raised_at_once() -> None:
    calls: list[None] = []

    @retry_when_busy
    async def transaction() -> None:
        calls.append(None)
        raise DatabaseUnavailable

    with pytest.raises(DatabaseUnavailable):
        await transaction()
    assert len(calls) == 1


async def test_the_way_is_cleared_before_each_retry() -> None:
    steps: list[str] = []

    async def clear() -> None:
        steps.append("clear")

    class Writer:
        @retry_when_busy(before_retry=clear)
        async def write(self, row: int) -> int:
            steps.append("write")
            if len(steps) < 5:
                raise DatabaseBusy
            return row

    assert await Writer().write(7) == 7
    assert steps == ["write", "clear", "write", "clear", "write"]
