"""Attacks on a running service by the sites it scans: other sites are read as without them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.faults.figures import Figures
from tests.faults.fleet import Fleet
from tests.faults.junk_names import HONEST_ENTRIES, LENGTHS, honest_pages, junk_pages
from tests.faults.observed_service import ObservedService, observed
from tests.fixtures.dns_server import DnsServer
from tests.fixtures.documents import urlset_of
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

PAUSE_SECONDS = 0.2
MAX_GROWTH_KIB = 100 * 1024
SILENT = [f"silent{number}.example" for number in range(12)]
HONEST = [f"honest{number}.example" for number in range(6)]


async def poison(service: ObservedService, attackers: list[SiteServer]) -> None:
    """Scan the attackers, one length of names after the other."""
    for turn, length in enumerate(LENGTHS):
        site = attackers[turn % len(attackers)]
        site.pages = {**await asyncio.to_thread(junk_pages, turn, length)}
        await service.scan(site)


@pytest.mark.timeout(180)
async def test_junk_names_of_one_site_spoil_the_documents_of_no_other(
    fleet: Fleet, figures: Figures
):
    process, address = await fleet.service(lease_seconds=30)
    async with AsyncExitStack() as stack:
        calm, beside, after, *attackers = [
            await stack.enter_async_context(SiteServer()) for _ in range(6)
        ]
        for site, prefix in ((calm, "calm"), (beside, "beside"), (after, "after")):
            site.pages = {**honest_pages(prefix)}
        service = await stack.enter_async_context(observed(address, process.pid))
        await service.scan(calm)
        expected = await service.listed(calm)
        before = service.resident()
        async with service.probed():
            attack = asyncio.create_task(poison(service, attackers))
            jobs = []
            while not attack.done():
                jobs.append(await service.scan(beside))
                await asyncio.sleep(PAUSE_SECONDS)
            await attack
        jobs.append(await service.scan(after))
        assert len(expected) == 3 * HONEST_ENTRIES
        assert sum(extras != "None" for _, extras in expected) >= HONEST_ENTRIES
        assert {(job["status"], job["result_data"]["partial"]) for job in jobs} == {
            ("completed", False)
        }
        assert await service.listed(beside) == expected
        assert await service.listed(after) == expected
    growth = max(service.resident_kib) - before
    for seconds in service.health_seconds:
        figures.sample("/health while junk names are read (ms)", seconds * 1000)
    figures.count("memory added while junk names are read (MiB)", round(growth / 1024))
    assert growth < MAX_GROWTH_KIB


@pytest.mark.faults_short
@pytest.mark.timeout(90)
async def test_names_whose_servers_never_answer_delay_no_other_job(fleet: Fleet, figures: Figures):
    site = SiteServer()
    dns = DnsServer(dict.fromkeys(HONEST, ("127.0.0.1",)), silent=SILENT)
    async with site, dns:
        pages = [f"{site.base}/{number}" for number in range(10)]
        site.pages = {"/robots.txt": "Sitemap: /sitemap.xml", "/sitemap.xml": urlset_of(pages)}
        allowed = ",".join(f"{name}:{site.port}" for name in HONEST)
        process, address = await fleet.service(
            egress_allow=allowed, dns_servers=dns.entry, lease_seconds=30
        )
        async with observed(address, process.pid) as service:
            silent = [await service.submit(f"https://{name}/") for name in SILENT]
            await wait_until(lambda: set(SILENT) <= set(dns.asked), seconds=20)
            began = time.monotonic()
            honest = [await service.submit(f"http://{name}:{site.port}/") for name in HONEST]
            jobs = await asyncio.gather(*map(service.ended, honest))
            figures.sample("six jobs beside silent name servers (s)", time.monotonic() - began)
            waiting = [await service.status(url) for url in silent]
    assert {(job["status"], job["attempt"]) for job in jobs} == {("completed", 1)}
    assert {job["result_data"]["url_count"] for job in jobs} == {len(pages)}
    assert {job["status"] for job in waiting} <= {"pending", "processing"}
