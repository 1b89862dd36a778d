"""A pace that was asked for by name: it holds for every host, the operator's own included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from siteatlas.net.address import WebAddress
from siteatlas.net.politeness import Politeness


class SteadyPace(Politeness):
    """Politeness that gives nobody a free run."""

    @asynccontextmanager
    async def slot(
        self,
        address: WebAddress,
        own: bool = False,  # noqa: ARG002
        *,
        max_retry_after: float = 5.0,
        ips: Iterable[str] = (),
    ) -> AsyncIterator[None]:
        """Wait for a place as any other host would."""
        async with super().slot(address, max_retry_after=max_retry_after, ips=ips):
            yield

    def pause(self, address: WebAddress, seconds: float, *, own: bool = False) -> None:  # noqa: ARG002
        """Send nothing to this host for so long."""
        super().pause(address, seconds)

    def record(self, address: WebAddress, ok: bool, *, own: bool = False) -> None:  # noqa: ARG002
        """Note how a request went."""
        super().record(address, ok)
