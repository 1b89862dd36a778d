"""Names to addresses, without threads. Judging the addresses is left to `gate.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import pycares

from siteatlas.errors import DnsError, DnsNameUnknown
from siteatlas.net.dns_query import DnsQuery

LOOKUP_SECONDS = 4.5
# Shorter than the first pause before a job is retried.
DEAD_SECONDS = 10.0
QUICK_SECONDS = 1.0
MAX_DEAD_NAMES = 1024
_UNKNOWN = frozenset({pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA})


class Resolver(Protocol):
    """Whatever can tell all addresses of a name."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Every address of the name; DnsNameUnknown or DnsError when there is none."""


class DnsResolver:
    """Asks the hosts file, then the name servers of the system or the given ones.

    Any number of lookups run at the same time here; the gate limits them for each client. A name
    whose servers did not answer in time is not asked for again for a few seconds. `servers` are
    IP addresses, with a port where it is not 53.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = tuple(servers)
        self._dead_until: dict[str, float] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        if self._dead_until.get(host, 0.0) > time.monotonic():
            raise DnsError("The name servers of the site did not answer a moment ago.")
        since = time.monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._ask(host)
        except TimeoutError as error:
            self._remember(host)
            raise DnsError("The name of the site was not resolved in time.") from error
        except pycares.AresError as error:
            if error.args[0] in _UNKNOWN:
                raise DnsNameUnknown from error
            if time.monotonic() - since > QUICK_SECONDS:
                self._remember(host)
            raise DnsError from error
        except UnicodeError as error:
            raise DnsError from error

    async def _ask(self, host: str) -> Sequence[str]:
        with DnsQuery(self._servers) as query:
            return await query.addresses(host)

    def _remember(self, host: str) -> None:
        if len(self._dead_until) >= MAX_DEAD_NAMES:
            self._dead_until.clear()
        self._dead_until[host] = time.monotonic() + DEAD_SECONDS
