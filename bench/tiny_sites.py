"""Serves many tiny sites from one process, each at a different loopback address.

Every site has a robots.txt and one sitemap of ten URLs. Responses are created beforehand, so that
the measured program, and not this one, uses the CPU.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

URLS = 10
PORT = 18424
SECONDS_TO_START = 20
SITES_PER_ROW = 250
END_OF_HEAD = b"\r\n\r\n"


def address(number: int) -> str:
    """The loopback address of a site."""
    return f"127.77.{number // SITES_PER_ROW}.{number % SITES_PER_ROW + 1}"


def addresses(count: int) -> list[str]:
    """The addresses of the sites."""
    return [f"http://{address(number)}:{PORT}" for number in range(count)]


def _answer(body: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


NOT_FOUND = _answer("nothing", "404 Not Found")


class TinySite(asyncio.Protocol):
    """One connection to one site."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._transport: asyncio.Transport | None = None
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request whose head is complete; requests have no body."""
        assert self._transport is not None
        *requests, self._held = (self._held + data).split(END_OF_HEAD)
        for request in requests:
            path = request.split(b" ", 2)[1]
            self._transport.write(self._answers.get(path, NOT_FOUND))


def answers_of(number: int) -> dict[bytes, bytes]:
    """The responses of a site, by path."""
    base = f"http://{address(number)}:{PORT}"
    entries = "".join(
        f"<url><loc>{base}/page-{page}</loc><lastmod>2026-11-01</lastmod></url>"
        for page in range(URLS)
    )
    sitemap = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
    return {
        b"/robots.txt": _answer(f"User-agent: *\nSitemap: {base}/only.xml\n"),
        b"/only.xml": _answer(sitemap),
    }


@contextmanager
def tiny_sites(count: int) -> Iterator[list[str]]:
    """Serve `count` sites while the block runs; yields their addresses."""
    process = subprocess.Popen([sys.executable, __file__, str(count)])
    try:
        _wait_until_it_answers(process, count)
        yield addresses(count)
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], count: int) -> None:
    give_up = time.monotonic() + SECONDS_TO_START
    last = f"http://{address(count - 1)}:{PORT}/robots.txt"
    while time.monotonic() < give_up and process.poll() is None:
        try:
            urlopen(last, timeout=1).close()
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"The tiny sites do not respond. Is port {PORT} in use?")


async def serve(count: int) -> None:
    loop = asyncio.get_running_loop()
    for number in range(count):
        answers = answers_of(number)
        await loop.create_server(lambda a=answers: TinySite(a), address(number), PORT)  # type: ignore[misc]
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
