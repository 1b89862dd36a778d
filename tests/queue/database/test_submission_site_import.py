"""Watching a list of sites: in the order of their names, so that two lists cannot deadlock."""

from __future__ import annotations

import pytest

from siteatlas.catalog.domains import ImportedSite, WatchedSite, watch_domains
from siteatlas.net.address import parse_site
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_background_session

pytestmark = pytest.mark.usefixtures("database")

NAMES = ("a.example", "b.example", "c.example")


async def watch(names: tuple[str, ...]) -> list[WatchedSite]:
    """Watch these sites in a transaction of its own."""
    sites = [ImportedSite(parse_site(name)) for name in names]
    async with get_background_session() as session, session.begin():
        return await watch_domains(
            session, sites, created_by=LOCAL_USER_ID, default_interval_hours=24
        )


@pytest.mark.parametrize("listed", [NAMES[::-1], ("b.example", "c.example", "a.example")])
@pytest.mark.parametrize("known", [(), ("c.example", "a.example"), NAMES])
async def test_sites_are_locked_in_the_order_of_their_names_whatever_that_of_the_list(
    listed: tuple[str, ...], known: tuple[str, ...]
) -> None:
    if known:
        await watch(known)
    watched = await watch(listed)
    assert [site.domain for site in watched] == list(NAMES)
    assert {site.domain for site in watched if not site.is_new} == set(known)
