"""Measures `siteatlas serve` on a fresh embedded database: submit a scan, wait until it is stored.

After the first scan, the unchanged site is scanned with and without validators, and then with one
URL of a hundred changed. Memory is that of the serving process; the processes of PostgreSQL are not
counted.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench.figure import Figure
from bench.make_site import change_site
from bench.measured import last_lines, our_command, peak_memory_mb
from bench.site_server import ServedSite

SECONDS_TO_START = 60
SECONDS_TO_SCAN = 1800
SECONDS_BETWEEN_HEALTH_CHECKS = 0.1
# The service answers the polls, so many of them would slow down what is measured.
SECONDS_BETWEEN_POLLS = 0.25
FIRST_NOTE = "siteatlas serve, stored in PostgreSQL"
FINAL = {"completed", "failed", "cancelled"}


class ServeFailed(Exception):
    """The service did not start, or a scan did not complete."""


def measure_serve(folder: Path, served_site: ServedSite, site: Path, urls: int) -> list[Figure]:
    """The first scan of the site into an empty database, then scans of the same site."""
    try:
        with serving(folder, served_site.base_url.removeprefix("http://")) as (pid, address):
            figures = [
                _serve_figure("serve", address, served_site, urls, FIRST_NOTE),
                _serve_figure("serve, unchanged", address, served_site, urls, "with validators"),
            ]
            served_site.show(site, validators=False)
            figures.append(
                _serve_figure(
                    "serve, equal bytes", address, served_site, urls, "without validators"
                )
            )
            served_site.show(change_site(site), validators=False)
            figures.append(_serve_figure("serve, 1 % changed", address, served_site, urls, "dates"))
            return [replace(figures[0], peak_mb=peak_memory_mb(pid)), *figures[1:]]
    except (ServeFailed, OSError) as error:
        return [Figure("serve", problem=str(error))]
    finally:
        served_site.show(site)


def _serve_figure(name: str, address: str, served_site: ServedSite, urls: int, note: str) -> Figure:
    return Figure(name, urls, scan_and_wait(address, served_site.base_url, urls), note=note)


@contextmanager
def serving(folder: Path, allowed: str, *, workers: int = 0) -> Iterator[tuple[int, str]]:
    """A running service with an empty database; yields its process id and its address.

    With `workers`, the service only accepts jobs, and that many worker processes run them.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="serve-") as name:
        work, port = Path(name), free_port()
        work.chmod(0o755)  # PostgreSQL runs as another user when root starts it
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        environment |= {
            "SITEATLAS_DATA_DIR": str(work / "data"),
            "SITEATLAS_PORT": str(port),
            "SITEATLAS_EGRESS_ALLOW": allowed,
        }
        with (work / "log").open("wb") as log:
            command: list[str | Path] = [
                our_command(),
                "serve",
                *(["--no-scheduler"] if workers else []),
            ]
            process = subprocess.Popen(command, env=environment, stderr=log)
            try:
                address = f"http://127.0.0.1:{port}"
                wait_until_healthy(process, address, work / "log")
                with working(workers, environment, log):
                    yield process.pid, address
            finally:
                process.terminate()
                process.wait()


@contextmanager
def working(processes: int, environment: dict[str, str], log: BinaryIO) -> Iterator[None]:
    """Worker processes on the database of the service."""
    if not processes:
        yield
        return
    command: list[str | Path] = [our_command(), "worker", "--processes", str(processes)]
    worker = subprocess.Popen(command, env=environment, stderr=log)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def free_port() -> int:
    """A port that is free right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    give_up = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < give_up and process.poll() is None:
        try:
            request_json(f"{address}/health")
        except (URLError, OSError):
            time.sleep(SECONDS_BETWEEN_HEALTH_CHECKS)
        else:
            return
    output = log.read_text(encoding="utf-8", errors="replace").strip()
    raise ServeFailed(f"serve did not start: {last_lines(output)}")


def scan_and_wait(address: str, base_url: str, urls: int) -> float:
    """Submit a scan and wait for its end; returns the seconds in between.

    Timed by the database clock, so that the status need not be polled often.
    """
    start = time.perf_counter()
    job = request_json(f"{address}/api/v3/sitemap/scan", {"base_url": base_url})
    status = request_json(f"{address}/api/v3/sitemap/status/{job['job_id']}")
    while status["status"] not in FINAL and time.perf_counter() - start < SECONDS_TO_SCAN:
        time.sleep(SECONDS_BETWEEN_POLLS)
        status = request_json(f"{address}/api/v3/sitemap/status/{job['job_id']}")
    if status["status"] != "completed" or status["result_data"].get("partial"):
        raise ServeFailed(f"the job is {status['status']}: {status.get('error_code')}")
    stored = request_json(f"{address}/api/v3/domains/{base_url.removeprefix('http://')}")[
        "url_count"
    ]
    if stored != urls:
        raise ServeFailed(f"{stored} URLs are stored, not {urls}")
    submitted, finished = (datetime.fromisoformat(status[n]) for n in ("created_at", "finished_at"))
    return (finished - submitted).total_seconds()


def request_json(url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON response of the service; a POST if there is a body."""
    data = json.dumps(body).encode() if body is not None else None
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own address
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own address
        return json.load(answer)
