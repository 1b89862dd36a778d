"""Measures whether receivers that never answer slow down scans: jobs per second with and without.

The CPU time of the serving process is printed too: on a busy machine it varies less.

`python -m bench.webhooks --rounds 3` prints a line for each run; with and without take turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.serve_command import request_json, serving
from bench.tiny_sites import PORT, tiny_sites

RECEIVERS = 10
SECONDS_BETWEEN_POLLS = 1


@contextmanager
def silent_receiver() -> Iterator[str]:
    """A port that accepts connections and never responds; yields its host and port."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        held: list[socket.socket] = []

        def accept() -> None:
            """Keep every connection until the listener is closed."""
            try:
                while True:
                    held.append(listener.accept()[0])
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def measure(folder: Path, sites: int, receivers: int) -> tuple[float, float]:
    """Jobs per second and CPU milliseconds per job, while receivers do not answer."""
    with (
        silent_receiver() as receiver,
        tiny_sites(sites) as addresses,
        serving(folder, f"127.77.0.0/16:{PORT},{receiver}") as (pid, service),
    ):
        for number in range(receivers):
            request_json(f"{service}/api/v3/webhooks", {"url": f"http://{receiver}/{number}"})
        spent = cpu_seconds(pid)
        batch = request_json(f"{service}/api/v3/sitemap/batch/create", {"domains": addresses})
        status = request_json(service + batch["status_url"])
        while status["completed_domains"] + status["failed_domains"] < sites:
            time.sleep(SECONDS_BETWEEN_POLLS)
            status = request_json(service + batch["status_url"])
        spent = cpu_seconds(pid) - spent
        hooks = request_json(f"{service}/api/v3/webhooks")["items"]
        assert len(hooks) == receivers
        assert not any(hook["last_delivered_at"] for hook in hooks)
    ends = [_moment(one["end_time"]) for one in status["domain_statuses"].values()]
    seconds = (max(ends) - _moment(status["created_at"])).total_seconds()
    return sites / seconds, spent / sites * 1000


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, from /proc."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def main() -> None:
    """Run the rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sites", type=int, default=1000)
    options = parser.parse_args()
    runs: dict[int, list[tuple[float, float]]] = {0: [], RECEIVERS: []}
    with tempfile.TemporaryDirectory(prefix="siteatlas-bench-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user when root starts it
        for _ in range(options.rounds):
            for receivers, measured in runs.items():
                measured.append(measure(Path(folder), options.sites, receivers))
                print(figures(receivers, [measured[-1]]), flush=True)
    print("Medians")
    for receivers, measured in runs.items():
        print(figures(receivers, measured))


def figures(receivers: int, measured: Sequence[tuple[float, float]]) -> str:
    """One line with the medians of some runs."""
    rate, cpu = (statistics.median(values) for values in zip(*measured, strict=True))
    return f"{receivers:2} silent receivers: {rate:.1f} jobs/s, {cpu:.2f} ms of CPU time per job"


if __name__ == "__main__":
    main()
