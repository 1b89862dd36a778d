"""A service that was started with `--insecure-no-auth` says so on every page."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.session import Database
from tests.fixtures.application import BASE_URL

WARNING = "--insecure-no-auth"


@pytest.mark.parametrize("is_insecure", [True, False])
async def test_pages_warn_of_a_service_that_is_open_to_all(database: Database, is_insecure: bool):
    app = create_app(
        Settings(),
        run_scheduler=False,
        database=database,
        installation=Installation(is_closed=False),
        insecure_no_auth=is_insecure,
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        for path in ("/", "/jobs"):
            page = await client.get(path)
            assert page.status_code == 200
            assert (WARNING in page.text) is is_insecure
