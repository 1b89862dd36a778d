"""Serves the demo sites on one port of 127.0.0.1, each under a name that ends in .localhost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Literal, Self

from aiohttp import web

from siteatlas.demo.documents import ServedDocument
from siteatlas.demo.sites import MISSING, PLANS, SiteContent, SitePlan

USUAL_PORT = 8765
# With data of its own for each, so that a site has one address in a database.
PORTS = (*range(USUAL_PORT, USUAL_PORT + 10), 0)


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
    """All demo sites on the first of `ports` that is free; `sites` is filled while it runs."""

    def __init__(self, plans: Sequence[SitePlan] = PLANS, ports: Sequence[int] = (0,)) -> None:
        self.sites: list[DemoSite] = []
        self.port = 0
        self._plans = plans
        self._ports = ports
        self._contents: dict[str, SiteContent] = {}
        self._runner = web.AppRunner(
            application(self._contents), access_log=None, shutdown_timeout=1
        )

    async def start(self) -> None:
        """Start every site; on failure none is left running."""
        try:
            await self._runner.setup()
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self.port = self._runner.addresses[0][1]
        for plan in self._plans:
            self._add_site(plan, f"{plan.name}.localhost")

    async def stop(self) -> None:
        """Stop every site and free the port."""
        self.sites.clear()
        await self._runner.cleanup()

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

    async def _listen(self) -> None:
        for port in self._ports:
            try:
                await web.TCPSite(self._runner, "127.0.0.1", port).start()
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == self._ports[-1]:
                    raise

    def _add_site(self, plan: SitePlan, host: str) -> None:
        base_url = f"http://{host}:{self.port}"
        content = self._contents[host] = plan.build(base_url)
        self.sites.append(
            DemoSite(
                name=plan.name,
                description=plan.description,
                base_url=base_url,
                host_port=f"{host}:{self.port}",
                expected_urls=content.expected_urls,
                expected_sitemaps=content.expected_sitemaps,
                expected_status=content.expected_status,
                expected_partial=content.expected_partial,
                expected_error_code=content.expected_error_code,
            )
        )


def application(contents: Mapping[str, SiteContent]) -> web.Application:
    """A web application that serves each content to requests for its host."""
    turn = asyncio.Lock()

    async def answer(request: web.Request) -> web.Response:
        """Respond to a request for any path of a demo site."""
        content = contents.get(request.url.host or "")
        if content is None:
            return demo_response(MISSING, None)
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
