"""What a site or a name server may try once a scan runs, by the rows of the safety table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from siteatlas.errors import EgressDenied
from siteatlas.net import egress
from siteatlas.net.address import parse_url
from siteatlas.net.client import Politeness
from siteatlas.net.egress import (
    SELF_CHECK,
    EgressPolicy,
    Refusal,
    is_private_host,
    self_check,
)
from siteatlas.net.response import FetchLimits
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import DocumentClosed
from tests.fixtures.documents import urlset_of
from tests.fixtures.raw_server import PathServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.fixtures.scans import record_scan

LIMITS = FetchLimits(dns=0.5, connect=5, first_byte=5, idle=5, document=10, tries=1)
PUBLIC, PRIVATE = "93.184.215.14", "127.0.0.1"
GOOD = whole_answer(urlset_of(["https://a.example/good"]))
NAMED = whole_answer(b"Sitemap: /s.xml\nSitemap: /good.xml")


def analyzer_for(policy: EgressPolicy, names: Mapping[str, tuple[str, ...]] | None = None):
    resolver = FakeResolver(dict(names or {}))
    return SitemapAnalyzer(
        policy, Politeness(0, 2), user_agent="test", limits=LIMITS, resolver=resolver
    )


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((PRIVATE,), id="row-121"),
        pytest.param((PUBLIC, "10.0.0.1"), id="row-122"),
        pytest.param((PUBLIC, "::1"), id="row-123"),
        pytest.param(("64:ff9b::a9fe:a9fe",), id="row-126"),
        pytest.param(("fe80::1%eth0",), id="row-154-scope"),
        pytest.param(("::ffff:127.0.0.1",), id="row-154-mapped"),
    ],
)
async def test_a_name_with_one_forbidden_record_is_refused(records: Sequence[str]):
    names = {"site.example.com": tuple(records), "www.site.example.com": tuple(records)}
    record = await record_scan(analyzer_for(EgressPolicy(), names), "http://site.example.com")
    assert record.error_code == "egress_denied"


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param({"/s.xml": redirect("http://127.0.0.1/")}, "egress_denied", id="row-129"),
        pytest.param({"/s.xml": redirect("file:///etc/passwd")}, "redirect_scheme", id="row-131"),
        pytest.param({"/s.xml": redirect("//10.0.0.1/x")}, "egress_denied", id="row-132"),
        pytest.param({"/s.xml": redirect("\\\\10.0.0.1\\x")}, "redirect_invalid", id="row-133"),
        pytest.param(
            {"/s.xml": redirect("/b.xml"), "/b.xml": redirect("/s.xml")},
            "redirect_loop",
            id="row-135",
        ),
        pytest.param(
            {"/s.xml": redirect("/0")} | {f"/{n}": redirect(f"/{n + 1}") for n in range(9)},
            "too_many_redirects",
            id="row-136",
        ),
        pytest.param({"/s.xml": redirect("http://127.0.0.1:22/")}, "egress_denied", id="row-137"),
        pytest.param(
            {"/s.xml": whole_answer(b"<html/>", headers=("Refresh: 0; url=/good.xml",))},
            "html_instead",
            id="row-138",
        ),
        pytest.param(
            {"/robots.txt": whole_answer(b"Sitemap: http://169.254.169.254/\nSitemap: /good.xml")},
            "egress_denied",
            id="row-146",
        ),
    ],
)
async def test_a_site_that_leads_astray_loses_one_document(answers: dict[str, bytes], code: str):
    async with PathServer({"/robots.txt": NAMED, "/good.xml": GOOD, **answers}) as server:
        policy = EgressPolicy.from_text(server.entry)
        record = await record_scan(analyzer_for(policy), server.url())
    assert record.urls == ["https://a.example/good"]
    assert code in {event.error_code for event in record.all(DocumentClosed)}


async def test_row_148_a_public_site_cannot_lead_into_an_allowed_range():
    policy = EgressPolicy.from_text("10.0.0.0/8:*").for_site(parse_url("http://1.1.1.1/"))
    with pytest.raises(EgressDenied):
        policy.check(parse_url("http://10.1.1.1/"))


async def test_row_149_a_site_inside_an_allowed_range_is_scanned():
    async with PathServer({"/robots.txt": NAMED, "/good.xml": GOOD}) as server:
        policy = EgressPolicy.from_text(f"127.0.0.0/8:{server.port}")
        record = await record_scan(analyzer_for(policy), server.url())
    assert record.urls == ["https://a.example/good"]


async def test_row_151_the_service_does_not_scan_itself():
    policy = EgressPolicy().with_refused_socket("atlas.example.com", 443)
    names = {"atlas.example.com": (PUBLIC,), "www.atlas.example.com": ("10.0.0.1",)}
    record = await record_scan(analyzer_for(policy, names), "https://atlas.example.com")
    assert record.error_code == "egress_denied"


async def test_row_153_rules_bind_the_host_that_was_asked_for():
    rules = b"User-agent: *\nDisallow: /\n"
    async with (
        PathServer({"/robots.txt": whole_answer(rules)}) as other,
        PathServer({"/robots.txt": redirect(other.url("/robots.txt"))}) as server,
    ):
        policy = EgressPolicy.from_text(f"127.0.0.0/8:{server.port},127.0.0.0/8:{other.port}")
        record = await record_scan(analyzer_for(policy), server.url())
    assert record.error_code == "no_sitemap"
    assert server.paths == ["/robots.txt"]


def test_the_self_check_passes():
    self_check()
    addresses = {text: parse_url(text) for text in SELF_CHECK}
    refusals = {text: EgressPolicy().refusal(one.host, one.port) for text, one in addresses.items()}
    assert refusals == {
        "http://127.0.0.1/": Refusal.PRIVATE_ADDRESS,
        "http://169.254.169.254/": Refusal.NEVER_OPENS,
        "http://10.0.0.1/": Refusal.PRIVATE_ADDRESS,
        "http://[::ffff:127.0.0.1]/": Refusal.NEVER_OPENS,
        "http://localhost/": Refusal.RESERVED_NAME,
    }


def test_the_self_check_notices_a_policy_with_a_hole(monkeypatch):
    monkeypatch.setattr(egress, "is_public", lambda ip: True)
    with pytest.raises(AssertionError, match="lets"):
        self_check()


@pytest.mark.parametrize(
    ("host", "private"),
    [("example.com", False), ("1.1.1.1", False), ("localhost", True), ("[::1]", True), ("x", True)],
)
def test_private_hosts_are_known(host: str, private: bool):
    assert is_private_host(host) is private
