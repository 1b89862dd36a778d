"""A site whose responses stop at chosen points, so that a test can reach each phase of a job."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from aiohttp import web

from tests.fixtures.pipeline import index, pages, urlset
from tests.fixtures.site_server import SiteServer

FIRST_BATCH = 13_500
BIG = 15_000
LAST = 16_500
LAST_START = 5_500
CHUNK_ENTRIES = 1_000
DRIBBLE_SECONDS = 0.5
DOCUMENTS = ("/index.xml", "/a.xml", "/b.xml", "/big.xml", "/last.xml")


class Gate:
    """A point where a response waits while the gate is closed."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        """Make every response that gets here wait."""
        self._open.clear()
        self.reached.clear()

    def open(self) -> None:
        """Let all responses continue."""
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    async def pass_through(self) -> None:
        """Report that a response got here, and wait until the gate is open."""
        self.reached.set()
        await self._open.wait()


class StagedSite(SiteServer):
    """An index of four sitemaps: two small ones, one of several write batches, and a last one.

    `gates`: `robots` before robots.txt, `body` inside the first small document, `batch` inside
    the big one after a whole write batch, `last` near the end, when all others are done.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "/robots.txt": self._robots,
                "/index.xml": index(f"{{base}}{path}" for path in DOCUMENTS[1:]),
                "/a.xml": self._small,
                "/b.xml": urlset([*pages("b", 25), *pages("a", 5), "{base}/b/page-0"]),
                "/big.xml": self._big,
                "/last.xml": self._last,
            }
        )
        self.gates = {name: Gate() for name in ("robots", "body", "batch", "last")}
        self._served_big = asyncio.Event()

    def open_all(self) -> None:
        """No response waits from now on."""
        for gate in self.gates.values():
            gate.open()

    def fetches(self) -> Counter[str]:
        """How often each document was requested; robots.txt is not counted."""
        return Counter(path for path in self.paths if path in DOCUMENTS)

    async def _robots(self, _request: web.BaseRequest) -> str:
        await self.gates["robots"].pass_through()
        return "Sitemap: {base}/index.xml\n"

    async def _small(self, request: web.BaseRequest) -> web.StreamResponse:
        text = self._document(pages("a", 10))
        return await self._in_parts(request, text[:300], text[300:], "body")

    async def _big(self, request: web.BaseRequest) -> web.StreamResponse:
        self._served_big.clear()
        text = self._document(pages("big", BIG))
        cut = text.index(f"/big/page-{FIRST_BATCH}<".encode())
        try:
            return await self._in_parts(request, text[:cut], text[cut:], "batch")
        finally:
            self._served_big.set()

    async def _in_parts(
        self, request: web.BaseRequest, first: bytes, rest: bytes, gate: str
    ) -> web.StreamResponse:
        response = await _started(request)
        with suppress(ConnectionResetError):  # the worker is dead
            await response.write(first)
            await self.gates[gate].pass_through()
            await response.write(rest)
            await response.write_eof()
        return response

    async def _last(self, request: web.BaseRequest) -> web.StreamResponse:
        """Sends chunks while the gate is closed, so that the worker writes what it has read."""
        response = await _started(request)
        text = self._document(pages("last", LAST))
        if "/big.xml" in self.paths:
            await self._served_big.wait()
        with suppress(ConnectionResetError):  # the worker is dead
            await self._dribble(response, text)
        return response

    async def _dribble(self, response: web.StreamResponse, text: bytes) -> None:
        gate, done = self.gates["last"], 0
        for entry in range(LAST_START, LAST, CHUNK_ENTRIES):
            cut = text.index(f"/last/page-{entry}<".encode())
            await response.write(text[done:cut])
            done = cut
            gate.reached.set()
            if not gate.is_open:
                await asyncio.sleep(DRIBBLE_SECONDS)
        await gate.pass_through()
        await response.write(text[done:])
        await response.write_eof()

    def _document(self, urls: list[str]) -> bytes:
        return urlset(urls).replace("{base}", self.base).encode()


async def _started(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/xml"})
    await response.prepare(request)
    return response


class SmallSite(SiteServer):
    """robots.txt and one sitemap of ten URLs, each served after a delay."""

    def __init__(self, delay: float = 0.0) -> None:
        super().__init__({"/robots.txt": "Sitemap: {base}/only.xml\n", "/only.xml": self._only})
        self._delay = delay

    async def _only(self, _request: web.BaseRequest) -> str:
        await asyncio.sleep(self._delay)
        return urlset(pages("only", 10))
