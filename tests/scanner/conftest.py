"""A scanner that may reach the test site and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.response import FetchLimits
from siteatlas.scanner.analyzer import SitemapAnalyzer
from tests.fixtures.resolver import FakeResolver
from tests.fixtures.site_server import SiteServer

# One try, and times that a busy machine does not exceed; a test of a time limit sets its own.
QUICK = FetchLimits(
    dns=10.0, connect=10.0, first_byte=10.0, idle=10.0, document=40.0, tries=1, retry_delay=0.01
)


MakeAnalyzer = Callable[..., SitemapAnalyzer]


@pytest.fixture
async def site() -> AsyncIterator[SiteServer]:
    """A site on loopback without any page."""
    async with SiteServer() as server:
        yield server


@pytest.fixture
def make_analyzer() -> MakeAnalyzer:
    """Builds an analyzer with the default policy plus exactly the given `host:port` entries."""

    def make(
        *entries: str, names: Mapping[str, str] | None = None, **options: Any
    ) -> SitemapAnalyzer:
        return SitemapAnalyzer(
            EgressPolicy.from_text(",".join(entries)),
            Politeness(0, 2),
            user_agent="Siteatlas/0.1 (test)",
            resolver=FakeResolver({name: (ip,) for name, ip in (names or {}).items()}),
            **({"limits": QUICK} | options),
        )

    return make
