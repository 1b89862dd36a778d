"""Sends one POST request through the egress gate: no redirects, no retries, no politeness.

For receivers that asked for it, such as webhooks. The address is checked at every request. The
status is returned, whatever it is; the body of the response is of no interest. Errors are raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import aiohttp

from siteatlas.errors import SiteatlasError
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import (
    Gate,
    Proxy,
    Resolver,
    choose_connect_target,
    request_options,
    request_url,
    time_limits,
)
from siteatlas.net.response import LIBRARY_FAULTS, FetchLimits, map_exception, retry_after_seconds


@dataclass(frozen=True, slots=True)
class PostResult:
    """The status of a response, and how long the receiver asks us to wait."""

    status: int
    retry_after: float | None


class PostClient:
    """Sends requests to one address; use it with `async with`.

    With a `proxy`, hosts that the policy does not list as the operator's own are requested through
    it. Names are looked up and checked for every new connection.
    """

    def __init__(
        self,
        address: WebAddress,
        policy: EgressPolicy,
        *,
        user_agent: str,
        seconds: float,
        resolver: Resolver | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self._gate = Gate(resolver)
        self._address = address
        self._policy = policy.for_site(address)
        self._headers = {"User-Agent": user_agent, "Accept": "*/*"}
        self._limits = FetchLimits(dns_cache=0.0, first_byte=seconds)
        self._seconds = seconds
        self._proxy = None if self._policy.is_listed(address.host, address.port) else proxy

    async def __aenter__(self) -> Self:
        await self._gate.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._gate.__aexit__()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> PostResult:
        """Send a body and wait for the response; ScanError or EgressDenied if there is none."""
        address = self._address
        self._policy.require(address)
        options = request_options({**self._headers, **headers}, address, self._proxy)
        session, url = self._gate.session, request_url(address)
        try:
            with choose_connect_target(address, self._policy, self._limits, self._proxy):
                async with asyncio.timeout(self._seconds):
                    raw = await session.post(
                        url,
                        data=body,
                        allow_redirects=False,
                        timeout=time_limits(self._limits),
                        **options,
                    )
                try:
                    await _ignore_body(raw)
                finally:
                    raw.close()
        except LIBRARY_FAULTS as error:
            raise map_exception(error) from error
        return PostResult(raw.status, retry_after_seconds(raw.headers.get("Retry-After")))


async def _ignore_body(raw: aiohttp.ClientResponse) -> None:
    """Read a short body: a connection whose response is complete can be used again."""
    with suppress(SiteatlasError, *LIBRARY_FAULTS):
        async with asyncio.timeout(1.0):
            # The status decides; a body that is longer or slower costs the connection.
            await raw.content.read(16 * 1024)
