"""Addresses that a person enters, and addresses of a site that cannot be requested."""

from __future__ import annotations

import pytest

from siteatlas.scanner.analyzer import ScanOptions
from siteatlas.scanner.discovery.home_page import guessed_paths, names_document
from siteatlas.scanner.events import CandidateJudged, DiscoveryMethod, DocumentClosed
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.scans import record_scan

URLS = ["https://a.example/1", "https://a.example/2"]
SITEMAP = urlset_of(URLS)
PAGE = "<!DOCTYPE html><html><body>Welcome</body></html>"


@pytest.mark.parametrize(
    "path",
    ["/a.xml", "/a.XML", "/d/a.xml.gz", "/a.gz", "/urls.txt?v=2", "/f.rss", "/f.atom", "/f.rdf"],
)
def test_the_name_of_a_sitemap_is(path):
    assert names_document(path)


@pytest.mark.parametrize(
    "path", ["/", "/en/", "/?utm=1", "/?file=a.xml", "/about", "/.xml", "/sitemap", "/sitemap.html"]
)
def test_the_name_of_a_page_may_be(path):
    assert not names_document(path)


@pytest.mark.parametrize("path", ["/en/", "/?utm=1", "/about", "/sitemap.html"])
async def test_a_page_address_names_the_site_and_is_no_document(site, make_analyzer, path):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP, path: PAGE}
    record = await record_scan(make_analyzer(site.host_port), site.base + path)
    assert record.urls == URLS
    assert record.outcomes == {"/s.xml": "complete"}
    assert record.verdicts == {path: "rejected html_instead", "/s.xml": "accepted"}


async def test_a_page_address_that_is_not_there_is_no_document_either(site, make_analyzer):
    site.pages |= {"/sitemap.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base + "/gone")
    assert record.outcomes == {"/sitemap.xml": "complete"}
    assert record.verdicts["/gone"] == "rejected http_not_found"


async def test_a_page_address_is_not_the_reason_for_a_site_without_a_sitemap(site, make_analyzer):
    site.pages |= {"/en/": PAGE}
    record = await record_scan(make_analyzer(site.host_port), site.base + "/en/")
    assert record.error_code == "no_sitemap"


async def test_an_address_without_the_name_of_a_sitemap_may_be_one(site, make_analyzer):
    site.pages |= {"/export": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base + "/export")
    assert record.outcomes == {"/export": "complete"}


@pytest.mark.parametrize(("answer", "code"), [(PAGE, "html_instead"), (None, "http_not_found")])
async def test_a_given_sitemap_that_cannot_be_read_is_reported(site, make_analyzer, answer, code):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP}
    site.pages |= {"/map.xml": answer} if answer else {}
    record = await record_scan(make_analyzer(site.host_port), site.base + "/map.xml")
    assert record.outcomes == {"/map.xml": f"unread {code}", "/s.xml": "complete"}


async def test_documents_named_earlier_are_read_with_those_of_the_site(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP, "/export": SITEMAP}
    options = ScanOptions(manual_documents=(f"{site.base}/export",))
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    methods = {event.url: event.method for event in record.all(DocumentClosed)}
    assert methods == {
        f"{site.base}/export": DiscoveryMethod.MANUAL,
        f"{site.base}/s.xml": DiscoveryMethod.ROBOTS_TXT,
    }


async def test_a_readable_document_named_earlier_makes_guesses_needless(site, make_analyzer):
    site.pages |= {"/hidden/map.xml": SITEMAP}
    options = ScanOptions(manual_documents=(f"{site.base}/hidden/map.xml",))
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.urls == URLS
    assert site.paths == ["/robots.txt", "/hidden/map.xml"]


async def test_a_document_named_earlier_is_no_page_whatever_its_name(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: /s.xml", "/s.xml": SITEMAP, "/export": PAGE}
    options = ScanOptions(manual_documents=(f"{site.base}/export",))
    record = await record_scan(make_analyzer(site.host_port), site.base, options)
    assert record.outcomes["/export"] == "unread html_instead"


def closed(record) -> dict[str, tuple[str, str | None, str | None]]:
    return {
        event.url: (event.outcome.value, event.error_code, event.parent_url)
        for event in record.all(DocumentClosed)
    }


async def test_a_child_that_may_not_be_asked_for_is_an_unread_document(site, make_analyzer):
    child = "http://10.0.0.1/internal.xml"
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml",
        "/i.xml": index_of([f"{site.base}/s.xml", child]),
        "/s.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert closed(record)[child] == ("unread", "egress_denied", f"{site.base}/i.xml")
    judged = [event.reason for event in record.all(CandidateJudged) if event.url == child]
    assert judged == ["egress_denied"]


async def test_a_refused_child_of_two_indexes_is_reported_once(site, make_analyzer):
    child = "http://10.0.0.1/internal.xml"
    site.pages |= {
        "/robots.txt": "Sitemap: /i.xml\nSitemap: /j.xml\nSitemap: /s.xml",
        "/i.xml": index_of([child]),
        "/j.xml": index_of([child, f"{site.base}/s.xml"]),
        "/s.xml": SITEMAP,
    }
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert [event.url for event in record.all(DocumentClosed)].count(child) == 1


async def test_a_line_of_robots_txt_that_is_no_address_is_an_unread_document(site, make_analyzer):
    site.pages |= {"/robots.txt": "Sitemap: htp:/bogus\nSitemap: /s.xml", "/s.xml": SITEMAP}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert record.urls == URLS
    assert closed(record)["htp:/bogus"] == ("unread", "address_scheme", None)


@pytest.mark.slow
async def test_fifty_thousand_refused_children_are_a_hundred_unread_documents(site, make_analyzer):
    children = [f"http://10.0.0.1/{number}.xml" for number in range(50_000)]
    site.pages |= {"/robots.txt": "Sitemap: /i.xml", "/i.xml": index_of(children)}
    record = await record_scan(make_analyzer(site.host_port), site.base)
    assert sum(code == "egress_denied" for _, code, _ in closed(record).values()) == 100


def test_no_guess_is_a_page_of_an_administration():
    assert [path for path in guessed_paths() if "admin" in path or "login" in path] == []
