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

QUICK = FetchLimits(
    dns=0.5, connect=1.0, first_byte=1.0, idle=1.0, document=5.0, tries=1, retry_delay=0.01
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
