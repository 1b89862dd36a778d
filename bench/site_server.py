"""Serves the files of a folder on loopback, in a separate process.

What it serves can be changed while it runs: `ServedSite` replaces the folder, and switches
validators off: the header `Last-Modified` and the 304 responses that depend on it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

HOST = "127.0.0.1"
SECONDS_TO_START = 10
CURRENT = "current"
WITHOUT_VALIDATORS = "without-validators"


class QuietFiles(SimpleHTTPRequestHandler):
    """Files over keep-alive connections, without an access log."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def send_head(self) -> Any:
        """Ignore the validators of the client, if they are switched off."""
        if self._is_without_validators():
            del self.headers["If-Modified-Since"]
        return super().send_head()

    def send_header(self, keyword: str, value: str) -> None:
        """Omit the validator, if validators are switched off."""
        if keyword != "Last-Modified" or not self._is_without_validators():
            super().send_header(keyword, value)

    def _is_without_validators(self) -> bool:
        return (Path(self.directory).parent / WITHOUT_VALIDATORS).exists()

    def log_message(self, format: str, *arguments: object) -> None:
        """Do not log requests."""


@dataclass(frozen=True, slots=True)
class ServedSite:
    """A running server; `folder` is the one that it looks into."""

    base_url: str
    folder: Path

    def show(self, site: Path, *, validators: bool = True) -> None:
        """Serve the files of `site` from now on."""
        link = self.folder / f"{CURRENT}.new"
        link.symlink_to(site.resolve())
        link.replace(self.folder / CURRENT)
        flag = self.folder / WITHOUT_VALIDATORS
        if validators:
            flag.unlink(missing_ok=True)
        else:
            flag.touch()


@contextmanager
def served(site: Path, port: int) -> Iterator[ServedSite]:
    """Serve the files of `site` while the block runs."""
    with tempfile.TemporaryDirectory() as name:
        running = ServedSite(f"http://{HOST}:{port}", Path(name))
        running.show(site)
        process = subprocess.Popen([sys.executable, __file__, f"{name}/{CURRENT}", str(port)])
        try:
            _wait_until_it_answers(process, f"{running.base_url}/robots.txt")
            yield running
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
