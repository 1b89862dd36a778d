"""Clients with the default policy plus the exact address of the test server, and small limits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.response import FetchLimits, Response

# Times that a busy machine does not exceed; a test of a time limit sets its own.
QUICK = FetchLimits(
    dns=10.0,
    connect=10.0,
    first_byte=10.0,
    idle=10.0,
    document=40.0,
    max_bytes=1_000_000,
    retry_delay=0.01,
)

MakeClient = Callable[..., HttpClient]


@pytest.fixture
def make_client() -> MakeClient:
    """Builds a client that may reach only the given `host:port` entries."""

    def make(*entries: str, limits: FetchLimits = QUICK, **options: Any) -> HttpClient:
        policy = EgressPolicy.from_text(",".join(entries))
        return HttpClient(policy, Politeness(0, 2), user_agent="test", limits=limits, **options)

    return make


async def ask(request: AbstractAsyncContextManager[Response]) -> Response:
    """The answer to a request whose body nobody reads."""
    async with request as response:
        return response


async def read(response: Response) -> bytes:
    """The whole body."""
    return b"".join([chunk async for chunk in response.chunks()])
