"""The life of a job as a client sees it: the status route of a service, from submit to end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.commands import TIMEOUT_SECONDS, Machine, Service
from tests.fixtures.pipeline import pages, urlset
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site


class Gate:
    """Holds the answer to robots.txt until the test has looked at the running job."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def answer(self, _request: object) -> str:
        await asyncio.to_thread(self._open.wait, TIMEOUT_SECONDS)
        return ""


@contextmanager
def service_for(machine: Machine, site: SiteServer) -> Iterator[tuple[Machine, Service]]:
    """A service without a scheduler that may scan the site, and the machine for a worker."""
    allowed = {**machine.extra, "SITEATLAS_EGRESS_ALLOW": site.host_port}
    own = Machine(machine.data_dir, allowed)
    with own.service("--no-scheduler") as service:
        yield own, service


@pytest.mark.full
@pytest.mark.criterion("status-life", "completed-status")
@pytest.mark.parametrize("ending", ["completed", "failed"])
def test_a_client_sees_a_job_pending_then_processing_then_ended(machine: Machine, ending: str):
    gate = Gate()
    documents = {"/sitemap.xml": urlset(pages("a", 7))} if ending == "completed" else {}
    with (
        running_site({"/robots.txt": gate.answer, **documents}) as site,
        service_for(machine, site) as (own, service),
    ):
        submitted = service.request_json(
            "/api/v3/sitemap/scan", {"base_url": site.base, "max_pages": 100}
        )
        url = submitted["status_url"]
        pending = service.request_json(url)
        with own.process("worker"):
            running = service.wait_for(url, "processing")
            gate.open()
            ended = service.wait_for(url, ending)

    assert (pending["status"], pending["progress"], pending["attempt"]) == ("pending", 0, 0)
    assert (pending["started_at"], pending["finished_at"]) == (None, None)
    assert pending["result_data"] == {"domain": site.host_port, "max_pages": 100}
    assert (running["attempt"], running["finished_at"]) == (1, None)
    assert running["started_at"] is not None
    assert 0 <= running["progress"] < 1
    assert ended["finished_at"] is not None
    assert {job["job_id"] for job in (pending, running, ended)} == {submitted["job_id"]}
    if ending == "completed":
        assert (ended["progress"], ended["result_data"]["url_count"]) == (1, 7)
        assert (ended["error"], ended["error_code"]) == (None, None)
    else:
        assert (ended["error_code"], ended["progress"] < 1) == ("no_sitemap", True)
        assert ended["error"]
