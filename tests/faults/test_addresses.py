"""Many names on few IP addresses: all workers together keep to the rate of an address."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise

import pytest
from aiohttp import web

from siteatlas.net.address import parse_site
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import bind_database, create_database, get_background_session
from tests.faults.database_inspector import DatabaseInspector
from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.fixtures.dns_server import DnsServer
from tests.fixtures.site_server import SiteServer

NAMES = 200
ADDRESSES = [f"127.0.40.{number}" for number in range(1, 5)]
TABLE = {f"n{n}.internal": [ADDRESSES[n % len(ADDRESSES)]] for n in range(NAMES)}
HOST_DELAY = 0.8
RATE = 4 / HOST_DELAY
LEASE = 4.0
WINDOW = 3.0
KNOWN = "UPDATE domains SET address = $2 WHERE domain = $1"
OF_JOBS = "UPDATE jobs SET address = d.address FROM domains d WHERE d.id = jobs.domain_id"
ENDED = "SELECT count(*) FROM jobs WHERE status = 'completed'"
LEASED = """
    SELECT DISTINCT worker FROM address_slots s
    WHERE until > now() AND EXISTS (SELECT FROM jobs j WHERE j.address = s.address
        AND j.status = 'pending')
"""


class SharedHost(SiteServer):
    """The web server of all names, which logs when it was asked at which of its addresses."""

    listens_on = "0.0.0.0"

    def __init__(self) -> None:
        super().__init__({"/robots.txt": "Sitemap: /sitemap.xml\n", "/sitemap.xml": self._sitemap})
        self.asked: dict[str, list[float]] = defaultdict(list)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.asked[request.transport.get_extra_info("sockname")[0]].append(time.monotonic())
        return await super()._answer(request)

    @staticmethod
    def _sitemap(request: web.BaseRequest) -> str:
        return f"<urlset><url><loc>http://{request.host}/a</loc></url></urlset>"

    def highest_rate(self) -> float:
        """The most requests per second at one address, in any window."""
        most = 0
        for times in self.asked.values():
            for start in times:
                most = max(most, sum(start <= at < start + WINDOW for at in times))
        return most / WINDOW


async def submit_all(url: str, port: int) -> None:
    database = create_database(url)
    bind_database(database)
    try:
        async with get_background_session() as session, session.begin():
            for name in TABLE:
                site = parse_site(f"http://{name}:{port}")
                await submit_site(session, site, created_by=LOCAL_USER_ID)
    finally:
        bind_database(None)
        await database.close()


@pytest.mark.faults_short
@pytest.mark.timeout(120)
async def test_three_workers_keep_to_the_rate_of_each_address_and_go_on_when_one_is_killed(
    url: str, inspector: DatabaseInspector, fleet: Fleet, figures: Figures
):
    async with SharedHost() as host, DnsServer(TABLE) as names:
        await submit_all(url, host.port)
        for name, (address,) in TABLE.items():
            await inspector.rows(KNOWN, f"{name}:{host.port}", address)
        await inspector.rows(OF_JOBS)
        await fleet.workers(
            3,
            egress_allow=f"*.internal:{host.port},127.0.0.0/8:{host.port}",
            dns_servers=names.entry,
            host_delay=HOST_DELAY,
            concurrency=32,
            lease_seconds=LEASE,
        )
        await inspector.wait_for(f"SELECT ({ENDED}) >= {NAMES // 4}", seconds=60)
        holders = [row[0] for row in await inspector.rows(LEASED)]
        killed_at = time.monotonic()
        fleet.process_of(holders[0]).kill()
        await inspector.wait_for(f"SELECT ({ENDED}) = {NAMES}", seconds=90)
    gaps = [b - a for t in host.asked.values() for a, b in pairwise(t)]
    figures.sample("names on four addresses: most requests per second", host.highest_rate())
    figures.sample("names on four addresses: longest gap after a kill, s", max(gaps))
    figures.sample("names on four addresses: seconds", time.monotonic() - killed_at)
    assert set(host.asked) == set(ADDRESSES)
    # A request that was delayed on its way may arrive together with the next one.
    assert host.highest_rate() <= RATE * 1.05 + 2 / WINDOW
