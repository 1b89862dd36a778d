"""Which hosts belong to a site, and where its indexes may lead."""

from __future__ import annotations

import pytest

from siteatlas.scanner.crawl.document import (
    FOREIGN_DOCUMENTS_PER_DOMAIN,
    FOREIGN_DOCUMENTS_PER_SCAN,
    SiteHosts,
)


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
        ("www.com", "victim.com", False),
        ("www.com", "shop.www.com", True),
        ("www.co.uk", "victim.co.uk", False),
        ("www.co.uk", "co.uk", True),
        ("www.web.de", "shop.web.de", True),
        ("com", "victim.com", False),
        ("victim.com", "www.com", False),
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
    count = FOREIGN_DOCUMENTS_PER_DOMAIN
    taken = [hosts.allow_document("files.net", None) for _ in range(count + 1)]
    assert taken == [True] * count + [False]
    assert hosts.allow_document("files.net", "files.net")
    assert all(hosts.allow_document("cdn.example.com", None) for _ in range(100))


def test_many_names_of_one_foreign_domain_share_its_documents():
    hosts = SiteHosts("example.com")
    taken = [hosts.allow_document(f"x{number}.victim.com", None) for number in range(100)]
    assert sum(taken) == FOREIGN_DOCUMENTS_PER_DOMAIN


def test_a_scan_requests_a_limited_number_of_documents_on_all_foreign_hosts():
    hosts = SiteHosts("example.com")
    taken = [hosts.allow_document(f"victim{number}.com", None) for number in range(1000)]
    assert taken == [True] * FOREIGN_DOCUMENTS_PER_SCAN + [False] * 800
    assert hosts.allow_document("cdn.example.com", None)


def test_documents_that_are_refused_do_not_count_against_other_domains():
    hosts = SiteHosts("example.com")
    assert sum(hosts.allow_document("victim.com", None) for _ in range(1000)) == 20
    assert hosts.allow_document("files.net", None)
