"""Measures what others notice while readers do their worst.

One user opens exports of a large site and never reads them, another repeats the most expensive
filter. Meanwhile a third scans a small site and logs in. Run it as `python -m bench.crowd`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.large_site import make_site, percentile
from bench.measured import our_command
from bench.publication import HOST
from bench.serve_command import free_port, wait_until_healthy

LOCALHOST = "127.0.0.1"
FILTERED = f"/api/v3/domains/{HOST}/urls?contains=in-none-of-them"
EXPORT = f"/api/v3/domains/{HOST}/export?format=csv"
SITEMAP = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    "<url><loc>http://{host}/page</loc></url></urlset>"
)
RSS = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
ANSWER_SECONDS = 75.0
USERS = {"reader": ["read"], "searcher": ["read"], "scanner": ["read", "scan"]}


@dataclass(slots=True)
class Seen:
    """What the clients saw."""

    exports: Counter[str] = field(default_factory=Counter)
    filtered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    health: list[float] = field(default_factory=list)
    logins: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def report(self) -> str:
        """The figures as text."""
        lines = [
            f"exports: {dict(self.exports)}; filtered lists: {dict(self.filtered)}",
            f"refused to others: {dict(self.refused)}",
            *(
                f"{name}: {len(seconds)} times, median {1000 * statistics.median(seconds):.0f} ms, "
                f"p99 {percentile(seconds, 0.99):.0f} ms, max {1000 * max(seconds):.0f} ms"
                for name, seconds in (
                    ("/health", self.health),
                    ("login", self.logins),
                    ("start of a scan", self.starts),
                )
                if seconds
            ),
            f"rss: {self.memory[0]:.0f} MB before, at most {max(self.memory):.0f} MB",
        ]
        return "\n".join(lines)


def request_bytes(
    method: str, path: str, key: str | None, body: bytes = b"", kind: str = ""
) -> bytes:
    """A request as it is sent."""
    head = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    head += [f"Authorization: Bearer {key}"] if key else []
    head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + body


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    """The status and the body of an answer that is read to its end."""
    reader, writer = await asyncio.open_connection(LOCALHOST, port)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(request)
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head[9:12].decode() or "none", body


async def hold_export(port: int, key: str, seen: Seen) -> None:
    """Open an export and read only whether it was accepted."""
    reader, writer = await asyncio.open_connection(LOCALHOST, port, limit=256)
    writer.write(request_bytes("GET", EXPORT, key))
    try:
        line = await reader.readline()
        seen.exports[line[9:12].decode() or "none"] += 1
        await asyncio.Event().wait()
    except (OSError, ValueError):
        seen.exports["reset"] += 1
    finally:
        writer.transport.abort()


async def repeat_filter(port: int, key: str, seen: Seen) -> None:
    """Repeat the most expensive filter, as fast as it is answered."""
    while True:
        status = await _status(port, request_bytes("GET", FILTERED, key))
        seen.filtered[status] += 1
        if status == "429":
            await asyncio.sleep(0.2)


async def _status(port: int, request: bytes) -> str:
    try:
        return (await ask(port, request))[0]
    except (OSError, TimeoutError) as error:
        return type(error).__name__


async def watch_health(port: int, seen: Seen) -> None:
    """Ask for `/health` 20 times a second."""
    while True:
        start = time.perf_counter()
        status = await _status(port, request_bytes("GET", "/health", None))
        if status == "200":
            seen.health.append(time.perf_counter() - start)
        else:
            seen.refused[f"/health {status}"] += 1
        await asyncio.sleep(0.05)


async def log_in_again(port: int, key: str, seen: Seen) -> None:
    """Log in every two seconds."""
    body = f"key={key}&next=/".encode()
    while True:
        start = time.perf_counter()
        form = request_bytes("POST", "/login", None, body, "application/x-www-form-urlencoded")
        status = await _status(port, form)
        if status == "303":
            seen.logins.append(time.perf_counter() - start)
        else:
            seen.refused[f"login {status}"] += 1
        await asyncio.sleep(2.0)


async def scan_again(port: int, key: str, site: str, seen: Seen) -> None:
    """Scan a site of one document every two seconds; until the scan starts."""
    body = json.dumps({"base_url": site}).encode()
    while True:
        start = time.perf_counter()
        post = request_bytes("POST", "/api/v3/sitemap/scan", key, body, "application/json")
        try:
            status, text = await ask(port, post)
            if status == "202":
                job = json.loads(text)["job_id"]
                await _until_started(port, key, job)
                seen.starts.append(time.perf_counter() - start)
                await _until_started(port, key, job, word="finished_at")
            else:
                seen.refused[f"scan {status}"] += 1
        except (OSError, TimeoutError, ValueError, IndexError) as error:
            seen.refused[f"scan {type(error).__name__}"] += 1
        await asyncio.sleep(2.0)


async def _until_started(port: int, key: str, job: str, word: str = "started_at") -> None:
    while True:
        _, text = await ask(port, request_bytes("GET", f"/api/v3/jobs/{job}", key))
        if json.loads(text).get(word):
            return
        await asyncio.sleep(0.05)


async def watch_memory(pid: int, seen: Seen) -> None:
    """Note the memory of the service twice a second."""
    status = Path(f"/proc/{pid}/status")
    while True:
        found = RSS.search(await asyncio.to_thread(status.read_text, encoding="ascii"))
        seen.memory.append(int(found[1]) / 1024 if found else 0.0)
        await asyncio.sleep(0.5)


@asynccontextmanager
async def running(*work: Any) -> AsyncIterator[None]:
    """Run these while the block runs."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def crowd(
    pid: int, port: int, keys: dict[str, str], site: str, options: argparse.Namespace
) -> Seen:
    """The figures of others while the readers do their worst."""
    seen = Seen()
    reader, others = keys["reader"], keys["scanner"]
    honest = [
        watch_memory(pid, seen),
        watch_health(port, seen),
        log_in_again(port, others, seen),
        scan_again(port, others, site, seen),
    ]
    async with running(*honest):
        await asyncio.sleep(5)
        print("without the readers\n" + seen.report(), flush=True)
        for seconds in (seen.health, seen.logins, seen.starts):
            seconds.clear()
        async with running(
            *(hold_export(port, reader, seen) for _ in range(options.exports)),
            *(repeat_filter(port, keys["searcher"], seen) for _ in range(options.filters)),
        ):
            await asyncio.sleep(options.seconds)
    return seen


@contextmanager
def small_site(folder: Path) -> Iterator[str]:
    """A site of one document; yields its host and port."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    handler.func.log_message = lambda *_args: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer((LOCALHOST, 0), handler) as server:
        host = f"{LOCALHOST}:{server.server_port}"
        (folder / "sitemap.xml").write_text(SITEMAP.format(host=host), encoding="utf-8")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield host
        server.shutdown()


def main() -> None:
    """Make the site, start the service, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=500_000)
    parser.add_argument("--exports", type=int, default=520)
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--data", type=Path, help="Keep the database here.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crowd-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)  # PostgreSQL runs as another user when root starts it
        data = options.data or folder / "data"
        if not data.exists():
            asyncio.run(make_site(data, options.urls))
        (folder / "site").mkdir()
        with small_site(folder / "site") as site, (folder / "log").open("wb") as log:
            environment = os.environ | {
                "SITEATLAS_DATA_DIR": str(data),
                "SITEATLAS_PORT": str(port),
                "SITEATLAS_EGRESS_ALLOW": site,
                "SITEATLAS_SUBMITS_PER_MINUTE": "1000",
            }
            keys = {user: _make_key(environment, user, *scopes) for user, scopes in USERS.items()}
            process = subprocess.Popen([our_command(), "serve"], env=environment, stderr=log)
            try:
                wait_until_healthy(process, f"http://{LOCALHOST}:{port}", folder / "log")
                seen = asyncio.run(crowd(process.pid, port, keys, site, options))
            finally:
                process.terminate()
                process.wait()
    print("with the readers\n" + seen.report())


def _make_key(environment: dict[str, str], user: str, *scopes: str) -> str:
    command = [str(our_command()), "keys", "create", "--name", user]
    for scope in scopes:
        command += ["--scope", scope]
    made = subprocess.run(command, env=environment, capture_output=True, check=True)
    return made.stdout.decode().strip()


if __name__ == "__main__":
    main()
