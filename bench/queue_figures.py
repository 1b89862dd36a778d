"""Measures the queue: jobs per second, the claim, an idle process, and submits under load.

`python -m bench.queue_figures` prints its table; `make bench` prints it too.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path

import asyncpg

from bench.make_site import make_site
from bench.measured import our_command
from bench.serve_command import request_json, scan_and_wait, serving
from bench.site_server import HOST, served
from bench.tiny_sites import PORT, tiny_sites
from siteatlas.queue.claims import claim
from siteatlas.storage.embedded.server import EmbeddedServer
from siteatlas.storage.schema import upgrade_schema
from siteatlas.storage.session import bind_database, create_database, get_background_session

SITES = 1_000
SECONDS_BETWEEN_POLLS = 1
PENDING = 100_000
CLAIMS, CLAIM_LIMIT = 300, 20
SETTLE_SECONDS, IDLE_SECONDS = 25, 20
SUBMIT_SITES, SUBMIT_PAUSE = 1_000, 0.02
# Jobs of one site, and ten of others that come after them.
CROWD = """
    INSERT INTO jobs (created_by, dedup_key, site, priority, run_at, result_data)
    SELECT u.id, 'h' || n, CASE WHEN n <= $1 THEN 'example.com' ELSE n || '.example' END, 5,
        now() - interval '1 hour' + n * interval '1 ms', '{"domain": "example.com"}'
    FROM generate_series(1, $1::int + 10) n, (SELECT id FROM users ORDER BY id LIMIT 1) u
"""
FILL = """
    INSERT INTO jobs (created_by, dedup_key, priority, run_at, result_data)
    SELECT u.id, 'site-' || n, (ARRAY[0, 5, 9])[n % 3 + 1], now() - n * interval '1 ms',
        '{"domain": "example.com"}'
    FROM generate_series(1, $1::int) n, (SELECT id FROM users ORDER BY id LIMIT 1) u
"""


@dataclass(frozen=True, slots=True)
class QueueFigure:
    """One measured property of the queue, and its target."""

    what: str
    measured: str
    target: str


def queue_table(figures: Sequence[QueueFigure]) -> str:
    """The figures in Markdown."""
    rows = [f"| {one.what} | {one.measured} | {one.target} |" for one in figures]
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    head = ["| the queue | measured | target |", "|---|---|---|"]
    return "\n".join([*head, *rows, f"(load of the machine: {load}; {os.cpu_count()} cores)"])


def measure_queue(folder: Path, urls: int) -> list[QueueFigure]:
    """All figures of the queue."""
    return [
        tiny_site_figure(folder),
        tiny_site_figure(folder, workers=2),
        *direct_figures(folder),
        submit_figure(folder, urls),
        submit_with_workers_figure(folder, urls),
    ]


def tiny_site_figure(folder: Path, *, workers: int = 0) -> QueueFigure:
    """Many tiny sites, submitted as one batch: queue, network and storage."""
    with (
        tiny_sites(SITES) as sites,
        serving(folder, f"127.77.0.0/16:{PORT}", workers=workers) as (_, service),
    ):
        names = [site.removeprefix("http://") for site in sites]
        body = {"domains": [f"http://{name}" for name in names]}
        batch = request_json(f"{service}/api/v3/sitemap/batch/create", body)
        status = request_json(service + batch["status_url"])
        while status["completed_domains"] + status["failed_domains"] < SITES:
            time.sleep(SECONDS_BETWEEN_POLLS)
            status = request_json(service + batch["status_url"])
    ends = [_moment(one["end_time"]) for one in status["domain_statuses"].values()]
    seconds = (max(ends) - _moment(status["created_at"])).total_seconds()
    failed = f", {status['failed_domains']} failed" if status["failed_domains"] else ""
    by = f"{workers} workers" if workers else "one process"
    what = f"{SITES:,} tiny sites, queued, scanned and stored, {by}"
    return QueueFigure(what, f"{SITES / seconds:.0f} jobs/s{failed}", ">= 60, better 100")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def direct_figures(folder: Path) -> list[QueueFigure]:
    """The claim with many jobs waiting, and the statements of an idle worker."""
    with temporary_server(folder) as (server, work):
        idle = asyncio.run(idle_queries(server, work))
        claims = asyncio.run(claim_milliseconds(server.url))
        behind = asyncio.run(claims_behind_a_crowd(server.url))
    p50, p99 = percentile(claims, 0.5), percentile(claims, 0.99)
    return [
        QueueFigure(
            f"claim of {CLAIM_LIMIT} with {PENDING:,} pending",
            f"median {p50:.1f} ms, p99 {p99:.1f} ms",
            "p99 <= 20 ms",
        ),
        QueueFigure(
            f"claim of ten jobs behind {PENDING:,} of a site with all its slots",
            f"median {percentile(behind, 0.5):.1f} ms, p99 {percentile(behind, 0.99):.1f} ms",
            "p99 <= 25 ms",
        ),
        QueueFigure("statements of an idle worker", f"{idle:.2f} per second", "<= 2"),
    ]


@contextmanager
def temporary_server(folder: Path) -> Iterator[tuple[EmbeddedServer, Path]]:
    """A temporary embedded server with the schema of Siteatlas."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="queue-") as name:
        work = Path(name)
        work.chmod(0o755)
        with EmbeddedServer(work, announce=lambda _text: None) as server:
            asyncio.run(_upgrade(server.url))
            yield server, work


async def _upgrade(url: str) -> None:
    database = create_database(url, behind_pooler=False)
    await upgrade_schema(database.engine)
    await database.close()


async def claim_milliseconds(url: str) -> list[float]:
    """How long each of many claims took, from beginning its transaction to its commit."""
    connection = await asyncpg.connect(_plain(url))
    await connection.execute(FILL, PENDING)
    await connection.execute("VACUUM ANALYZE jobs")
    await connection.close()
    database = create_database(url, behind_pooler=True)
    bind_database(database)
    times = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        async with get_background_session() as session, session.begin():
            taken = await claim(session, "bench", CLAIM_LIMIT, 60)
        times.append((time.perf_counter() - began) * 1000)
        assert len(taken) == CLAIM_LIMIT
    bind_database(None)
    await database.close()
    return times


async def claims_behind_a_crowd(url: str) -> list[float]:
    """How long claims of ten jobs take that come after those of a site at its limit."""
    connection = await asyncpg.connect(_plain(url))
    await connection.execute("TRUNCATE jobs CASCADE")
    await connection.execute(CROWD, PENDING)
    await connection.execute("VACUUM ANALYZE jobs")
    await connection.close()
    database = create_database(url, behind_pooler=True)
    bind_database(database)
    times = []
    for _ in range(CLAIMS):
        async with get_background_session() as session, session.begin():
            began = time.perf_counter()
            taken = await claim(
                session, "bench", CLAIM_LIMIT, 60, sites_at_limit=["example.com"], max_per_site=8
            )
            times.append((time.perf_counter() - began) * 1000)
            assert len(taken) == 10
            await session.rollback()
    bind_database(None)
    await database.close()
    return times


async def idle_queries(server: EmbeddedServer, work: Path) -> float:
    """Statements per second of a worker with nothing to do, as the server's log counts them."""
    with (work / "postgres" / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write("\nlog_statement = 'all'\n")
    admin = await asyncpg.connect(_plain(server.url).replace("siteatlas@", "postgres@", 1))
    await admin.execute("SELECT pg_reload_conf()")
    environment = {**os.environ, "DATABASE_URL": server.url}
    worker = subprocess.Popen(  # noqa: ASYNC220 - nothing else waits for this loop
        [our_command(), "worker"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        before = _logged_statements(work)
        await asyncio.sleep(IDLE_SECONDS)
        return (_logged_statements(work) - before) / IDLE_SECONDS
    finally:
        worker.terminate()
        worker.wait()
        await admin.execute("ALTER SYSTEM SET log_statement = 'none'")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()


def _logged_statements(work: Path) -> int:
    logs = (work / "postgres" / "log").glob("*.log")
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return sum("LOG:  statement: " in line or "LOG:  execute " in line for line in lines)


def _plain(url: str) -> str:
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)


def submit_figure(folder: Path, urls: int) -> QueueFigure:
    """Submits of tiny sites while the same process scans a large one."""
    times = submits_during_scans(folder, urls, scans=1, workers=0)
    return _submit_figure(f"POST /scan while the same process scans {urls:,} URLs", times)


def submit_with_workers_figure(folder: Path, urls: int) -> QueueFigure:
    """Submits of tiny sites while two workers scan a large one each."""
    times = submits_during_scans(folder, urls, scans=2, workers=2)
    return _submit_figure(f"POST /scan while two workers scan {urls:,} URLs each", times)


def _submit_figure(what: str, times: Sequence[float]) -> QueueFigure:
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    measured = f"median {p50:.1f} ms, p99 {p99:.1f} ms of {len(times)}"
    return QueueFigure(what, measured, "p99 <= 50 ms")


def submits_during_scans(folder: Path, urls: int, *, scans: int, workers: int) -> list[float]:
    """The milliseconds of submits until `scans` large sites, one per port, are stored."""
    ports = [PORT + 1 + number for number in range(scans)]
    allowed = ",".join([f"127.77.0.0/16:{PORT}", *(f"{HOST}:{port}" for port in ports)])
    with ExitStack() as stack:
        large = [
            stack.enter_context(served(make_site(folder, f"http://{HOST}:{port}", urls), port))
            for port in ports
        ]
        sites = stack.enter_context(tiny_sites(SUBMIT_SITES))
        _, service = stack.enter_context(serving(folder, allowed, workers=workers))
        threads = stack.enter_context(ThreadPoolExecutor(scans))
        waits = [threads.submit(scan_and_wait, service, site.base_url, urls) for site in large]
        times = list(submit_milliseconds(service, sites, waits))
        for wait in waits:
            wait.result()
        return times


def submit_milliseconds(
    service: str, sites: Sequence[str], scans: Sequence[Future[float]]
) -> Iterator[float]:
    """Submit sites in turn until the large scans have ended."""
    connection = HTTPConnection(service.removeprefix("http://"), timeout=30)
    number = 0
    while not all(scan.done() for scan in scans):
        body = json.dumps({"base_url": sites[number % len(sites)]})
        number += 1
        began = time.perf_counter()
        connection.request(
            "POST", "/api/v3/sitemap/scan", body, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        answer.read()
        yield (time.perf_counter() - began) * 1000
        assert answer.status == 202, answer.status
        time.sleep(SUBMIT_PAUSE)
    connection.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def main() -> None:
    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    folder.mkdir(exist_ok=True)
    urls = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    print(queue_table(measure_queue(folder, urls)))


if __name__ == "__main__":
    main()
