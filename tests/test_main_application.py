"""The application as a whole: what its lifespan starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import func, select, text
from structlog.testing import capture_logs

from siteatlas import main
from siteatlas.errors import ConfigurationError, SiteatlasError
from siteatlas.main import create_app
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Secret, Settings
from siteatlas.storage.models import Job
from siteatlas.storage.session import AsyncSession, Database, bound_database, get_session
from tests.fixtures.application import BASE_URL
from tests.fixtures.pipeline import pages, urlset
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until


async def moved_on(client: httpx.AsyncClient, status_url: str) -> dict[str, Any]:
    """The status of a job once somebody has taken it up."""
    async with asyncio.timeout(20):
        while True:
            status: dict[str, Any] = (await client.get(status_url)).json()
            if status["attempt"] or status["status"] != "pending":
                return status
            await asyncio.sleep(0.05)


@pytest.mark.criterion("scheduler-lifespan", "http-to-completion")
async def test_the_lifespan_runs_the_scheduler_and_a_submit_reaches_it(database: Database):
    policy = EgressPolicy.from_text("127.0.0.1:9")
    app = create_app(Settings(max_attempts=1), policy, database=database)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client,
    ):
        body = {"base_url": "http://127.0.0.1:9"}
        submitted = (await client.post("/api/v3/sitemap/scan", json=body)).json()
        assert submitted["warning"] is None
        status = await moved_on(client, submitted["status_url"])
    assert status["status"] != "pending" or status["attempt"] > 0
    assert app.state.api.wake is None


@pytest.mark.criterion("scheduler-lifespan")
async def test_the_end_of_the_lifespan_stops_the_scheduler(database: Database):
    app = create_app(Settings(), EgressPolicy(), database=database)
    before = asyncio.all_tasks()
    with capture_logs() as lines:
        async with app.router.lifespan_context(app):
            assert asyncio.all_tasks() > before
    events = [line["event"] for line in lines]
    assert events.index("scheduler_started") < events.index("scheduler_stopped")
    await wait_until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.criterion("errors-handled")
async def test_a_job_that_crashes_is_answered_without_our_inside(database: Database):
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE sitemaps ADD CHECK (false)"))
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as site:
        policy = EgressPolicy.from_text(site.host_port)
        app = create_app(Settings(max_attempts=1), policy, database=database)
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client,
        ):
            body = {"base_url": site.base}
            submitted = (await client.post("/api/v3/sitemap/scan", json=body)).json()
            await wait_until(lambda: ended(client, submitted["status_url"]))
            answer = await client.get(submitted["status_url"])
    job = answer.json()
    assert (job["status"], job["error_code"]) == ("failed", "internal_error")
    assert job["error"] == SiteatlasError().message
    for word in ("Traceback", "asyncpg", "sqlalchemy", "sitemaps", "check constraint"):
        assert word not in answer.text


async def ended(client: httpx.AsyncClient, status_url: str) -> bool:
    return (await client.get(status_url)).json()["status"] not in {"pending", "processing"}


async def test_a_database_that_was_handed_in_stays_open(database: Database):
    app = create_app(Settings(), run_scheduler=False, database=database)
    async with app.router.lifespan_context(app):
        pass
    assert bound_database() is database


async def test_the_database_of_the_settings_is_opened_and_closed(database_url: str):
    settings = Settings(database_url=Secret(database_url))
    app = create_app(settings, run_scheduler=False)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client,
    ):
        assert (await client.get("/health/database")).status_code == 200


async def test_the_environment_cannot_make_the_framework_send_telemetry(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "not an address")
    app = create_app(Settings(), run_scheduler=False, database=database)
    async with app.router.lifespan_context(app):
        pass
    assert not app._native_telemetry.enabled()


async def test_another_server_makes_the_application_from_the_environment(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SITEATLAS_PORT", "8123")
    app = create_app()
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8123") as client,
    ):
        assert (await client.get("/health/database")).status_code == 200
    assert main.app is main.app
    assert isinstance(main.app, FastAPI)


@pytest.mark.parametrize(
    ("name", "value"), [("SITEATLAS_PROXY", "proxy:3128"), ("SITEATLAS_EGRESS_ALLOW", "nowhere:x")]
)
def test_a_setting_that_another_server_cannot_use_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=rf"{name} \(from environment {name}\)"):
        create_app()


async def request_session() -> AsyncIterator[AsyncSession]:
    async with get_session() as session:
        yield session


async def test_a_route_of_another_application_gets_its_session_by_dependency(database: Database):
    other = FastAPI()

    @other.get("/waiting")
    async def waiting(session: Annotated[AsyncSession, Depends(request_session)]) -> int:
        async with session.begin():
            return int(await session.scalar(select(func.count()).select_from(Job)) or 0)

    assert bound_database() is database
    transport = httpx.ASGITransport(app=other)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        answer = await client.get("/waiting")
    assert (answer.status_code, answer.json()) == (200, 0)
