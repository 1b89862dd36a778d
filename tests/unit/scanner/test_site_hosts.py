"""Which hosts belong to a site, and where its indexes may lead."""

from __future__ import annotations

import pytest

from siteatlas.scanner.crawl.site_hosts import FOREIGN_DOCUMENTS_PER_HOST, SiteHosts


@pytest.mark.parametrize(
    ("site", "host", "belongs"),
    [
        ("example.com", "example.com", True),
        ("example.com", "www.example.com", True),
        ("www.example.com", "example.com", True),
        ("example.com", "cdn.example.com", True),
        ("blog.example.com", "example.com", True),
        ("www.example.co.uk", "example.co.uk", True),
        ("shop.example.co.uk", "example.co.uk", True),
        ("shop.bmw.de", "bmw.de", True),
        ("impots.gouv.fr", "gouv.fr", False),
        ("example.com", "notexample.com", False),
        ("example.com", "example.com.evil.net", False),
        ("example.com", "com", False),
        ("example.co.uk", "co.uk", False),
        ("example.com.au", "com.au", False),
        ("blog.example.com", "shop.example.com", False),
        ("127.0.0.1", "0.0.1", False),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_the_hosts_of_a_site(site, host, belongs):
    assert SiteHosts(site).belongs(host) is belongs


def test_an_index_leads_to_its_own_host_and_to_hosts_that_the_site_named():
    hosts = SiteHosts("example.com")
    assert hosts.follows("files.net", "files.net")
    assert not hosts.follows("files.net", "example.com")
    hosts.name("files.net")
    assert hosts.follows("files.net", "example.com")


def test_a_foreign_host_gets_a_few_documents_unless_it_lists_them_itself():
    hosts = SiteHosts("example.com")
    taken = [hosts.allow_document("files.net", None) for _ in range(FOREIGN_DOCUMENTS_PER_HOST + 1)]
    assert taken == [True] * FOREIGN_DOCUMENTS_PER_HOST + [False]
    assert hosts.allow_document("files.net", "files.net")
    assert all(hosts.allow_document("cdn.example.com", None) for _ in range(100))
