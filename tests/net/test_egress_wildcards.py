"""Names by wildcard reach listed ranges and nothing else, whatever a site or its DNS answers."""

from __future__ import annotations

import pytest

from siteatlas.errors import EgressDenied
from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import Proxy
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import DocumentClosed
from tests.fixtures.documents import urlset_of
from tests.fixtures.egress import permits
from tests.fixtures.raw_server import PathServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.fixtures.scans import record_scan
from tests.net.conftest import QUICK, ask

WIKI = "wiki.corp.example"
PUBLIC = "93.184.215.14"
POLICY = EgressPolicy.from_text("*.corp.example,10.20.0.0/16,[fd12::/16]")
GOOD = whole_answer(urlset_of(["https://a.example/good"]))


def test_an_entry_without_a_port_is_for_80_and_443():
    policy = EgressPolicy.from_text("wiki.corp, 10.20.0.0/16,[::1]")
    for text in ("http://wiki.corp", "https://wiki.corp", "http://10.20.3.4", "https://[::1]/"):
        assert permits(policy.check, parse_site(text))
    for text in ("http://wiki.corp:8080", "http://10.20.3.4:8443"):
        assert not permits(policy.check, parse_site(text))
    assert policy.entries[:2] == ("wiki.corp:80", "wiki.corp:443")


def test_a_wildcard_is_shown_as_it_is_written():
    text = "*.corp.example:9000,*.lan:*,10.20.0.0/16:*"
    assert ",".join(EgressPolicy.from_text(text).entries) == text


@pytest.mark.parametrize("ips", [("10.20.0.1",), ("10.20.0.1", "10.20.9.9", "fd12::1")])
def test_a_name_with_all_addresses_in_listed_ranges_is_allowed(ips: tuple[str, ...]):
    assert permits(POLICY.check_records, WIKI, ips, 443)
    assert permits(POLICY.check_records, f"a.b.{WIKI}", ips, 80)
    assert permits(POLICY.for_site(parse_site(WIKI)).check_records, WIKI, ips, 443)


def test_a_public_name_of_the_domain_is_allowed_as_any_other():
    assert permits(POLICY.check_records, WIKI, (PUBLIC, "2606:2800::1"), 443)


@pytest.mark.parametrize(
    ("host", "ips", "port"),
    [
        pytest.param(WIKI, ("10.20.0.1", PUBLIC), 443, id="one-public"),
        pytest.param(WIKI, (PUBLIC, "10.20.0.1"), 443, id="one-private"),
        pytest.param(WIKI, ("10.20.0.1", "10.21.0.1"), 443, id="one-in-no-range"),
        pytest.param(WIKI, ("10.20.0.1", "169.254.169.254"), 443, id="metadata"),
        pytest.param(WIKI, ("127.0.0.1",), 443, id="loopback"),
        pytest.param(WIKI, ("::1",), 443, id="loopback-6"),
        pytest.param(WIKI, ("::ffff:10.20.0.1",), 443, id="mapped"),
        pytest.param(WIKI, ("::10.20.0.1",), 443, id="compatible"),
        pytest.param(WIKI, ("64:ff9b::a14:1",), 443, id="nat64"),
        pytest.param(WIKI, ("2002:a14:1::",), 443, id="6to4"),
        pytest.param(WIKI, ("fd12::1%eth0",), 443, id="zone"),
        pytest.param(WIKI, ("10.20.0.1",), 8080, id="other-port"),
        pytest.param(WIKI, (PUBLIC,), 22, id="public-other-port"),
        pytest.param("corp.example", ("10.20.0.1",), 443, id="the-domain-itself"),
        pytest.param("evilcorp.example", ("10.20.0.1",), 443, id="same-ending"),
        pytest.param("corp.example.evil.com", ("10.20.0.1",), 443, id="as-a-prefix"),
        pytest.param("rebind.evil.com", ("10.20.0.1",), 443, id="any-other-name"),
        pytest.param("10.20.0.1.evil.com", ("10.20.0.1",), 443, id="address-as-prefix"),
    ],
)
def test_what_a_wildcard_does_not_open(host: str, ips: tuple[str, ...], port: int):
    assert not permits(POLICY.check_records, host, ips, port)
    assert not permits(
        POLICY.for_site(parse_site(f"http://{host}:{port}")).check_records, host, ips, port
    )


def test_a_range_opens_no_name_not_even_in_the_scan_of_one_of_its_addresses():
    policy = EgressPolicy.from_text("10.20.0.0/16").for_site(parse_site("http://10.20.0.1"))
    assert permits(policy.check_socket, "10.20.0.2", "10.20.0.2", 80)
    assert not permits(policy.check_socket, "rebind.evil.com", "10.20.0.2", 80)


def test_a_reserved_name_by_wildcard_needs_a_listed_range():
    policy = EgressPolicy.from_text("*.corp,10.20.0.0/16")
    assert permits(policy.check, parse_site("https://wiki.corp"))
    assert permits(policy.check_records, "wiki.corp", ("10.20.0.1",), 443)
    assert not permits(policy.check_records, "wiki.corp", (PUBLIC,), 443)


def test_the_zone_of_a_scan_is_the_submitted_name_alone():
    policy = POLICY.for_site(parse_site(f"https://{WIKI}"))
    assert permits(policy.check_records, WIKI, ("10.20.0.1",), 80)
    assert not permits(policy.check_records, "hr.corp.example", ("10.20.0.2",), 443)
    assert not permits(policy.check, parse_site("http://10.20.0.2"))
    assert not permits(policy.check_socket, "10.20.0.1", "10.20.0.1", 443)
    assert POLICY.for_site(parse_site("https://example.com")).entries == ()


def test_a_name_by_wildcard_is_not_the_operators_own():
    assert not POLICY.is_own(parse_site(WIKI))
    assert POLICY.is_listed(WIKI, 443)
    both = EgressPolicy.from_text(f"*.corp.example,10.20.0.0/16,{WIKI}")
    assert both.is_own(parse_site(WIKI))


def test_the_socket_of_the_service_stays_closed():
    policy = POLICY.with_refused_socket("10.20.0.1", 443).for_site(parse_site(WIKI))
    assert not permits(policy.check_records, WIKI, ("10.20.0.1",), 443)


async def test_a_redirect_from_a_name_by_wildcard_elsewhere_is_refused():
    async with PathServer({}) as server:
        port = server.port
        server.answers |= {
            "/robots.txt": whole_answer(b"".join(b"Sitemap: /%d.xml\n" % n for n in range(4))),
            "/0.xml": redirect(f"http://hr.corp.example:{port}/hr"),
            "/1.xml": redirect(f"http://127.0.0.1:{port}/literal"),
            "/2.xml": redirect(f"http://rebind.evil.com:{port}/rebind"),
            "/3.xml": GOOD,
        }
        names = {WIKI: ("127.0.0.1",), "hr.corp.example": ("127.0.0.1",)}
        resolver = FakeResolver(names | {"rebind.evil.com": ("127.0.0.1",)})
        policy = EgressPolicy.from_text(f"*.corp.example:{port},127.0.0.0/8:{port}")
        analyzer = SitemapAnalyzer(
            policy, Politeness(0, 2), user_agent="test", limits=QUICK, resolver=resolver
        )
        record = await record_scan(analyzer, f"http://{WIKI}:{port}")
    assert record.urls == ["https://a.example/good"]
    failed = [one.error_code for one in record.all(DocumentClosed) if one.error_code]
    assert failed == ["egress_denied"] * 3
    assert not {"/hr", "/literal", "/rebind"} & set(server.paths)


async def test_a_site_that_only_redirects_to_where_its_scan_may_not_go_is_refused_for_that():
    async with PathServer({"/robots.txt": redirect("http://printer.lan/robots.txt")}) as server:
        site = f"127.0.0.1:{server.port}"
        policy = EgressPolicy.from_text(site)
        analyzer = SitemapAnalyzer(policy, Politeness(0, 2), user_agent="test", limits=QUICK)
        record = await record_scan(analyzer, site)
    # Over HTTPS, its port does not answer.
    assert record.error_code == "egress_denied"


async def test_a_name_that_is_bound_to_another_address_later_is_refused():
    async with PathServer({"/": GOOD}) as server:
        resolver = FakeResolver({WIKI: [("127.0.0.1",), ("127.0.0.1", PUBLIC), ("::1",)]})
        policy = EgressPolicy.from_text(f"*.corp.example:{server.port},127.0.0.0/8:{server.port}")
        limits = QUICK.__class__(dns_cache=0, tries=1)
        async with HttpClient(
            policy, Politeness(0, 2), user_agent="test", limits=limits, resolver=resolver
        ) as client:
            address = parse_url(f"http://{WIKI}:{server.port}/")
            await ask(client.get(address))
            for _ in range(2):
                with pytest.raises(EgressDenied):
                    await ask(client.get(address))
    assert len(server.paths) == 1


async def test_a_name_by_wildcard_is_checked_here_and_not_left_to_the_proxy():
    async with PathServer({}) as proxy:
        resolver = FakeResolver({WIKI: ("10.99.0.1",)})
        async with HttpClient(
            POLICY,
            Politeness(0, 2),
            user_agent="test",
            limits=QUICK,
            resolver=resolver,
            proxy=Proxy("127.0.0.1", proxy.port),
        ) as client:
            with pytest.raises(EgressDenied):
                await ask(client.get(parse_url(f"http://{WIKI}/")))
    assert proxy.paths == []


@pytest.mark.parametrize(
    ("allowed", "site", "denied", "words", "entry"),
    [
        ("", "http://wiki.lan", None, "names ending in .lan are not public", "wiki.lan"),
        ("", "http://10.0.0.1:8080", None, "not a public address", "10.0.0.1:8080"),
        ("", "http://[fd12::1]", None, "not a public address", "[fd12::1]"),
        ("", "http://169.254.169.254", None, "cannot be allowed", None),
        (
            "redir.test:80,www.redir.test:443",
            "http://redir.test",
            ("www.redir.test", 443, ""),
            "the entry www.redir.test:443 is only for scans of what it names",
            None,
        ),
        (
            "*.corp.example,10.20.0.0/16",
            f"https://{WIKI}",
            (WIKI, 443, "10.21.0.1"),
            "the entry *.corp.example:443 needs all its addresses in listed ranges; 10.21.0.1",
            WIKI,
        ),
        (
            "10.20.0.0/16",
            "https://wiki.example.com",
            ("wiki.example.com", 443, "10.20.0.1"),
            "10.20.0.1, which is not public. A range allows addresses, not names.",
            "wiki.example.com",
        ),
    ],
)
def test_a_refusal_names_the_rule_and_what_to_write(
    allowed: str, site: str, denied: tuple[str, int, str] | None, words: str, entry: str | None
):
    policy = EgressPolicy.from_text(allowed)
    why, advised = policy.explain(EgressDenied(at=denied), parse_site(site))
    assert words in why
    assert advised == entry
    if advised is not None and denied is None:
        assert permits(policy.with_allowed(advised).check, parse_site(site))


def test_an_error_shows_no_address_to_clients_of_the_api():
    denied = EgressDenied(at=(WIKI, 443, "10.21.0.1"))
    assert (str(denied), denied.details) == (str(EgressDenied()), {})
