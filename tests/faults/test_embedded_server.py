"""The embedded PostgreSQL ends under a running service, which starts it again by itself."""

from __future__ import annotations

import os
import signal
from urllib.error import URLError

import pytest

from tests.fixtures.commands import Machine, Service, running_demo_sites
from tests.fixtures.embedded import data_directory
from tests.fixtures.waiting import block_until

BACK_WITHIN = 30


def postmaster_of(machine: Machine) -> int:
    return int((machine.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])


def is_back(service: Service) -> bool:
    try:
        return bool(service.request_json("/health/database")["status"] == "ok")
    except URLError:
        return False


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "end",
    [pytest.param(signal.SIGKILL, marks=pytest.mark.faults_short), signal.SIGINT],
    ids=lambda end: end.name,
)
def test_a_service_starts_its_own_database_again(end: signal.Signals) -> None:
    with data_directory() as folder, running_demo_sites() as sites:
        allowed = ",".join(site.host_port for site in sites.values())
        machine = Machine(folder, {"SITEATLAS_EGRESS_ALLOW": allowed})
        with machine.service() as service:
            assert service.scan(sites["papers"])["status"] == "completed"
            before = postmaster_of(machine)
            os.kill(before, end)
            block_until(lambda: is_back(service), seconds=BACK_WITHIN)
            assert postmaster_of(machine) != before
            assert service.scan(sites["blog"])["status"] == "completed"
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(25) == 0
        assert machine.postgres_processes() == []
