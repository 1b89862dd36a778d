"""Serves the files of a folder on loopback, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HOST = "127.0.0.1"
SECONDS_TO_START = 10


class QuietFiles(SimpleHTTPRequestHandler):
    """Files with kept connections and without a line per request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path, port: int) -> Iterator[str]:
    """Serve `folder` while the block runs; gives the base URL."""
    base_url = f"http://{HOST}:{port}"
    process = subprocess.Popen([sys.executable, __file__, str(folder), str(port)])
    try:
        _wait_until_it_answers(process, f"{base_url}/robots.txt")
        yield base_url
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    give_up = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < give_up and process.poll() is None:
        try:
            urlopen(url, timeout=1).close()  # noqa: S310 - our own address
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"The site does not answer at {url}. Is the port taken? Try --port.")


def main() -> None:
    folder, port = sys.argv[1:]
    handler = partial(QuietFiles, directory=folder)
    ThreadingHTTPServer((HOST, int(port)), handler).serve_forever()


if __name__ == "__main__":
    main()
