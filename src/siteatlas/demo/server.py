"""Serves the demo sites, each on its own loopback address."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Literal, Self

from aiohttp import web

from siteatlas.demo.documents import ServedDocument
from siteatlas.demo.sites import PLANS, SiteContent, SitePlan

USUAL_PORT = 8765


@dataclass(frozen=True, slots=True)
class DemoSite:
    """A running site, and what a scan of it must end with."""

    name: str
    description: str
    base_url: str
    host_port: str
    expected_urls: int
    expected_sitemaps: int
    expected_status: Literal["completed", "failed"]
    expected_partial: bool
    expected_error_code: str | None


class DemoServer:
    """All demo sites together; `sites` is filled while it runs."""

    def __init__(self, plans: Sequence[SitePlan] = PLANS) -> None:
        self.sites: list[DemoSite] = []
        self._plans = plans
        self._listeners: list[socket.socket] = []
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Start every site; on failure none is left running."""
        try:
            for number, plan in enumerate(self._plans, start=1):
                self._listeners.append(listening_socket(number))
                await self._start_site(plan, self._listeners[-1])
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every site and free its port."""
        self.sites.clear()
        while self._runners:
            await self._runners.pop().cleanup()
        while self._listeners:
            self._listeners.pop().close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start_site(self, plan: SitePlan, listener: socket.socket) -> None:
        host, port = listener.getsockname()
        base_url = f"http://{host}:{port}"
        content = plan.build(base_url)
        runner = web.AppRunner(application(content), access_log=None, shutdown_timeout=1)
        self._runners.append(runner)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        self.sites.append(
            DemoSite(
                name=plan.name,
                description=plan.description,
                base_url=base_url,
                host_port=f"{host}:{port}",
                expected_urls=content.expected_urls,
                expected_sitemaps=content.expected_sitemaps,
                expected_status=content.expected_status,
                expected_partial=content.expected_partial,
                expected_error_code=content.expected_error_code,
            )
        )


def listening_socket(number: int) -> socket.socket:
    """A socket on the same address and port at every start, if free, so that sites are recognized.

    On a machine with one loopback address, each site has its own port there.
    """
    for host, port in (
        (f"127.0.7.{number}", USUAL_PORT),
        (f"127.0.7.{number}", 0),
        ("127.0.0.1", USUAL_PORT + number),
    ):
        try:
            return socket.create_server((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                raise
    return socket.create_server(("127.0.0.1", 0))


def application(content: SiteContent) -> web.Application:
    """A web application that serves the content of one site."""
    turn = asyncio.Lock()

    async def answer(request: web.Request) -> web.Response:
        """Respond to a request for any path of a demo site."""
        if content.seconds_per_answer:
            async with turn:
                await asyncio.sleep(content.seconds_per_answer)
        document = content.documents.get(request.path, content.otherwise)
        return demo_response(document, request.headers.get("If-None-Match"))

    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", answer)
    app.router.add_route("HEAD", "/{path:.*}", answer)
    return app


def demo_response(document: ServedDocument, known_tag: str | None) -> web.Response:
    """The response of a demo site: a document, or 304 if the client has this version."""
    tag = f'"{sha256(document.body).hexdigest()[:16]}"'
    if document.status == web.HTTPOk.status_code and known_tag == tag:
        return web.Response(status=304, headers={"ETag": tag})
    headers = {"Content-Type": document.content_type, "ETag": tag}
    return web.Response(status=document.status, body=document.body, headers=headers)
