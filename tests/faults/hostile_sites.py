"""Sites that take as much of a scanner as they can, and honest ones, all behind one HTTP proxy.

Runs as a process of its own, on loopback, and answers for every host name; the name says what the
site does. A service that has it as its proxy treats these hosts as public ones: with delays
between requests and with shares of the slots. It imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

CHILDREN = 10_000
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
DRIP_SECONDS = 0.5
DRIP_ENTRIES = 50
FLOOD_ENTRIES = 500
SLOW_SECONDS = 0.25
ENDLESS_DOCUMENTS = 50


def site(kind: str, number: int) -> str:
    """The address of a hostile or honest site."""
    return f"http://www.{kind}-{number}.example"


def urlset(host: str, numbers: Iterable[int]) -> bytes:
    """Entries of a sitemap, without its end."""
    return "".join(f"<url><loc>http://{host}/page-{n}</loc></url>" for n in numbers).encode()


@cache
def index(host: str, children: int, prefix: str = "") -> bytes:
    """A sitemap index."""
    entries = "".join(
        f"<sitemap><loc>http://{host}/{prefix}{n}.xml</loc></sitemap>" for n in range(children)
    )
    return f"<sitemapindex {NAMESPACE}>{entries}</sitemapindex>".encode()


class Answers:
    """What one host says to one request at a time; a method for each kind of host."""

    def __init__(self, writer: asyncio.StreamWriter, host: str, path: str) -> None:
        self._writer = writer
        self._host = host
        self._path = path

    async def give(self) -> None:
        """Answer as the host does."""
        kind = self._host.split(".")[1].rpartition("-")[0]
        await getattr(self, f"_{kind}")()

    async def _honest(self) -> None:
        await self._robots_and("only.xml", self._small())

    async def _tiny(self) -> None:
        await asyncio.sleep(SLOW_SECONDS)
        await self._honest()

    async def _silent(self) -> None:
        await asyncio.Event().wait()

    async def _delayed(self) -> None:
        """Asks for half a minute between requests, and names many children."""
        robots = f"User-agent: *\nCrawl-delay: 30\nSitemap: http://{self._host}/index.xml\n"
        pages = {"/robots.txt": robots.encode(), "/index.xml": index(self._host, CHILDREN)}
        await self._say(pages.get(self._path, self._small()))

    async def _wide(self) -> None:
        """An index of indexes, each with as many children as a scan reads."""
        if self._path == "/robots.txt":
            await self._say(f"Sitemap: http://{self._host}/index.xml\n".encode())
        else:
            await self._say(index(self._host, CHILDREN, self._path.strip("/x.ml")))

    async def _chain(self) -> None:
        """Each index leads to the next one."""
        if self._path == "/robots.txt":
            await self._say(f"Sitemap: http://{self._host}/0.xml\n".encode())
        else:
            await self._say(index(self._host, 3, self._path.strip("/").removesuffix(".xml") + "-"))

    async def _flood(self) -> None:
        await self._endless(FLOOD_ENTRIES, 0.0)

    async def _drip(self) -> None:
        await self._endless(DRIP_ENTRIES, DRIP_SECONDS)

    async def _endless(self, entries: int, pause: float) -> None:
        if self._path == "/robots.txt":
            names = (f"Sitemap: http://{self._host}/{n}.xml\n" for n in range(ENDLESS_DOCUMENTS))
            await self._say("".join(names).encode())
            return
        self._writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        self._writer.write(f"<urlset {NAMESPACE}>".encode())
        first = 0
        while True:
            self._writer.write(urlset(self._host, range(first, first + entries)))
            await self._writer.drain()
            first += entries
            await asyncio.sleep(pause)

    async def _robots_and(self, name: str, document: bytes) -> None:
        robots = f"Sitemap: http://{self._host}/{name}\n".encode()
        pages = {"/robots.txt": robots, f"/{name}": document}
        await self._say(pages.get(self._path))

    def _small(self) -> bytes:
        return f"<urlset {NAMESPACE}>".encode() + urlset(self._host, range(10)) + b"</urlset>"

    async def _say(self, body: bytes | None) -> None:
        status = "404 Not Found" if body is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body or b'')}\r\n\r\n"
        self._writer.write(head.encode() + (body or b""))
        await self._writer.drain()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection; none of them has a body."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            target = urlsplit(head.split(b" ", 2)[1].decode())
            await Answers(writer, target.hostname or "", target.path).give()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
