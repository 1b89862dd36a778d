"""The request headers of a site go to one origin: with every request of a scan, nowhere else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.sitemap_scheduler import process_pending_sitemaps
from siteatlas.storage.models import Job, Sitemap, SitemapUrl
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import index, rows_of, settings_for, submit_server, urlset, work
from tests.fixtures.queue import job_of
from tests.fixtures.records import add_domain
from tests.fixtures.site_server import Handler, SiteServer

pytestmark = pytest.mark.usefixtures("database")

SECRET = "Basic " + b64encode(b"me:pa55").decode()
SITE = {
    "/robots.txt": "Sitemap: {base}/index.xml\n",
    "/index.xml": index(["{base}/a.xml", "{base}/b.xml"]),
    "/a.xml": urlset(["{base}/a-1", "{base}/a-2"]),
    "/b.xml": urlset(["{base}/b-1"]),
}


def behind_login(server: SiteServer, pages: dict[str, str]) -> dict[str, Handler]:
    """The pages, for requests with the right credentials."""

    def guarded(page: str) -> Handler:
        def answer(request: web.BaseRequest) -> str | web.Response:
            if request.headers.getall("Authorization", []) == [SECRET]:
                return page
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})

        return answer

    server.otherwise = guarded("")
    return {path: guarded(page) for path, page in pages.items()}


def redirect_to(address: str) -> Handler:
    return lambda _: web.Response(status=302, headers={"Location": address})


@pytest_asyncio.fixture
async def site() -> AsyncIterator[SiteServer]:
    """A known site of which every path needs a login."""
    async with SiteServer() as server:
        server.pages = dict(behind_login(server, SITE))
        async with transaction() as session:
            await add_domain(session, server.host_port, base_url=server.base)
        yield server


async def enter(
    client: httpx.AsyncClient, site: SiteServer, *, origin: str = "", **headers: str
) -> None:
    """Set the request headers of the site of a server."""
    sent = headers or {"Authorization": SECRET}
    path = f"/api/v3/domains/{site.host_port}/headers"
    answer = await client.put(path, json={"origin": origin or site.base, "headers": sent})
    assert answer.status_code == 200


async def scan(site: SiteServer, *others: SiteServer) -> Job:
    job = await submit_server(site)
    await work(settings_for(site, *others))
    return await job_of(job.id)


def received(server: SiteServer) -> list[bool]:
    return ["Authorization" in request.headers for request in server.requests]


async def test_a_site_behind_a_login_is_read_with_its_headers(
    client: httpx.AsyncClient, site: SiteServer
):
    failed = await scan(site)
    assert failed.error_code == "blocked"
    assert "domains set SITE --header" in (failed.error or "")
    site.requests.clear()
    await enter(client, site)
    assert (await scan(site)).status == "completed"
    assert {row.url for row in await rows_of(SitemapUrl)} == {
        f"{site.base}/{page}" for page in ("a-1", "a-2", "b-1")
    }
    assert site.paths[0] == "/robots.txt"
    assert all(received(site))


async def test_a_document_that_vanished_is_asked_for_with_the_headers(
    client: httpx.AsyncClient, site: SiteServer
):
    await enter(client, site)
    await scan(site)
    site.pages |= behind_login(site, {"/index.xml": index(["{base}/a.xml"])})
    site.requests.clear()
    await scan(site)
    assert "/b.xml" in site.paths
    assert all(received(site))


async def test_another_origin_never_gets_the_headers(client: httpx.AsyncClient, site: SiteServer):
    async with SiteServer(SITE) as other:
        site.pages |= behind_login(
            site,
            {
                "/robots.txt": f"Sitemap: {other.base}/a.xml\nSitemap: {{base}}/moved.xml\n"
                "Sitemap: {base}/a.xml\n"
            },
        )
        site.pages["/moved.xml"] = redirect_to(f"{other.base}/b.xml")
        await enter(client, site)
        # Both servers are in the zone of the scan, so that only the origin tells them apart.
        ports = f"127.0.0.0/8:{site.port},127.0.0.0/8:{other.port}"
        await submit_server(site)
        await process_pending_sitemaps(
            settings=settings_for(site, other), policy=EgressPolicy.from_text(ports)
        )
        assert other.paths == ["/a.xml"]
        assert received(other) == [False]
    codes = {row.url: row.error_code for row in await rows_of(Sitemap)}
    assert codes[f"{site.base}/moved.xml"] == "header_not_sent"


async def test_a_redirect_of_the_whole_site_names_the_origin_to_enter(client: httpx.AsyncClient):
    async with SiteServer() as target, SiteServer() as site:
        site.otherwise = redirect_to(f"{target.base}/robots.txt")
        await scan(site, target)
        await enter(client, site)
        target.requests.clear()
        job = await scan(site, target)
        assert target.requests == []
    assert job.error_code == "header_not_sent"
    assert job.error is not None
    assert f"not sent to {target.base}. If that is your site, enter them" in job.error
    assert SECRET not in job.error


async def test_an_origin_that_wants_the_login_of_another_is_named(
    client: httpx.AsyncClient, site: SiteServer
):
    await enter(client, site, origin="https://127.0.0.1:1")
    job = await scan(site)
    assert job.error_code == "header_not_sent"
    assert not any(received(site))
