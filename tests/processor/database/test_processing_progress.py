"""How far a job has come can be read from its row while it runs."""

from __future__ import annotations

import asyncio

import pytest

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor import recorder
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.storage.models import SitemapUrl
from tests.fixtures.pipeline import index, pages, rows_of, settings_for, submit_server, urlset, work
from tests.fixtures.queue import job_of, let_lease_expire, rescue_all, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

DOCUMENTS = 4


class StepwiseSite(SiteServer):
    """An index of four documents, each of which is answered when it is let go."""

    def __init__(self) -> None:
        self.gates = [asyncio.Event() for _ in range(DOCUMENTS)]
        names = [f"{{base}}/{number}.xml" for number in range(DOCUMENTS)]
        super().__init__({"/robots.txt": "Sitemap: {base}/index.xml", "/index.xml": index(names)})
        for number, gate in enumerate(self.gates):
            self.pages[f"/{number}.xml"] = self._answer_after(gate, number)

    def _answer_after(self, gate: asyncio.Event, number: int):
        async def answer(_request: object) -> str:
            await gate.wait()
            return urlset(pages(str(number), 10))

        return answer


@pytest.mark.criterion("progress-tracked")
async def test_progress_grows_with_each_document_and_ends_at_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0)  # write each document as it ends
    seen: list[float] = []
    async with StepwiseSite() as server:
        job = await submit_server(server)
        seen.append((await job_of(job.id)).progress)
        running = asyncio.create_task(work(settings_for(server)))

        async def moved_on() -> bool:
            return (await job_of(job.id)).progress > seen[-1]

        for gate in server.gates:
            await wait_until(moved_on)
            now = await job_of(job.id)
            assert now.status == "processing"
            seen.append(now.progress)
            gate.set()
        await running
    done = await job_of(job.id)
    assert seen == sorted(set(seen))
    assert (seen[0], len(seen)) == (0, 5)
    assert 0 < seen[1] < seen[-1] < 1
    assert (done.status, done.progress) == ("completed", 1.0)


async def progress_at_first_request(server: SiteServer) -> float:
    """Run the waiting job until it contacts its site, and stop it there as a dying worker does."""
    server.requests.clear()
    claim, settings = await take_one(), settings_for(server)
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    running = asyncio.create_task(processor.run(claim, JobActivity()))
    await wait_until(lambda: bool(server.requests))
    progress = (await job_of(claim.id)).progress
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await let_lease_expire(claim.id)
    await rescue_all()
    return progress


@pytest.mark.criterion("progress-tracked")
async def test_a_job_begins_at_zero_and_has_hardly_any_progress_before_it_reads_a_document() -> (
    None
):
    answer = asyncio.Event()

    async def slow(_request: object) -> str:
        await answer.wait()
        return ""

    async with SiteServer({"/robots.txt": slow}) as server:
        job = await submit_server(server)
        assert (await job_of(job.id)).progress == 0
        opened = await progress_at_first_request(server)
        continued = await progress_at_first_request(server)
        answer.set()
    assert 0 < opened <= 0.1
    assert continued == opened


async def test_what_was_read_is_written_while_the_job_waits_for_its_site() -> None:
    async with StepwiseSite() as server:
        await submit_server(server)
        running = asyncio.create_task(work(settings_for(server)))
        for gate in server.gates[:-1]:
            gate.set()

        async def all_but_the_last() -> bool:
            return len(await rows_of(SitemapUrl)) == 10 * (DOCUMENTS - 1)

        await wait_until(all_but_the_last)
        server.gates[-1].set()
        await running
    assert len(await rows_of(SitemapUrl)) == 10 * DOCUMENTS


@pytest.mark.criterion("progress-tracked")
async def test_what_was_read_so_far_is_shown_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0)
    async with StepwiseSite() as server:
        job = await submit_server(server)
        running = asyncio.create_task(work(settings_for(server)))
        server.gates[0].set()

        async def two_documents() -> bool:
            data = (await job_of(job.id)).result_data or {}
            return data.get("sitemap_count") == 2

        await wait_until(two_documents)
        data = (await job_of(job.id)).result_data or {}
        for gate in server.gates:
            gate.set()
        await running
    assert (data["url_count"], data["known_sitemap_count"]) == (10, 5)
