"""The policy refuses the inside of every network and opens exactly what the operator named."""

from __future__ import annotations

import pytest

from siteatlas.errors import ConfigurationError, EgressDenied
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from tests.fixtures.egress import permits

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.254",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.23",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.1.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.254",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["1.1.1.1", "172.32.0.1", "100.128.0.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1"]


def literal(ip: str, port: int = 80) -> str:
    return f"http://[{ip}]:{port}/" if ":" in ip else f"http://{ip}:{port}/"


def test_the_table_has_all_51_literals():
    assert len(set(PRIVATE)) == 51


@pytest.mark.parametrize("ip", PRIVATE)
def test_a_private_address_is_refused_as_literal_and_as_dns_record(ip: str):
    with pytest.raises(EgressDenied):
        EgressPolicy().check(parse_site(literal(ip)))
    with pytest.raises(EgressDenied):
        EgressPolicy().check_socket("example.com", ip, 80)


@pytest.mark.parametrize("ip", PUBLIC)
def test_a_public_address_is_allowed(ip: str):
    assert permits(EgressPolicy().check, parse_site(literal(ip)))
    assert permits(EgressPolicy().check_socket, "example.com", ip, 443)


@pytest.mark.parametrize("ip", ["fe80::1%eth0", "2606:4700::1%1", "example.com", "", "127.1"])
def test_a_record_that_is_no_plain_address_is_refused(ip: str):
    with pytest.raises(EgressDenied):
        EgressPolicy().check_socket("example.com", ip, 80)


@pytest.mark.parametrize("port", [80, 443, 8080, 8443])
def test_the_ports_of_the_web_are_open(port: int):
    assert permits(EgressPolicy().check, parse_site(f"http://example.com:{port}/"))
    assert permits(EgressPolicy().check_socket, "example.com", "1.1.1.1", port)


@pytest.mark.parametrize("port", [1, 22, 25, 81, 3306, 5432, 6379, 9200, 65535])
def test_other_ports_are_closed(port: int):
    with pytest.raises(EgressDenied):
        EgressPolicy().check(parse_site(f"http://example.com:{port}/"))
    with pytest.raises(EgressDenied):
        EgressPolicy().check_socket("example.com", "1.1.1.1", port)


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "postgres",
        "a.localhost",
        "printer.local",
        "db.internal",
        "x.home.arpa",
        "1.0.0.127.in-addr.arpa",
        "a.test",
        "a.invalid",
        "a.onion",
        "a.alt",
        "nas.lan",
        "nas.home",
        "wiki.corp",
        "app.svc",
    ],
)
def test_names_of_the_inside_are_refused(name: str):
    with pytest.raises(EgressDenied):
        EgressPolicy().check(parse_site(f"http://{name}/"))
    with pytest.raises(EgressDenied):
        EgressPolicy().check_socket(name, "1.1.1.1", 80)


def test_an_entry_opens_exactly_its_host_and_port():
    policy = EgressPolicy.from_text("127.0.0.1:9000, localhost:8080")
    policy.check(parse_site("http://127.0.0.1:9000/"))
    policy.check(parse_site("http://localhost:8080/"))
    policy.check_socket("localhost", "::1", 8080)
    for text in ("127.0.0.1:9001", "127.0.0.1", "127.0.0.2:9000", "localhost:9000", "localhost"):
        with pytest.raises(EgressDenied):
            policy.check(parse_site(f"http://{text}/"))


def test_a_name_does_not_borrow_the_entry_of_another_name():
    with pytest.raises(EgressDenied):
        EgressPolicy.from_text("localhost:8080").check_socket("example.com", "127.0.0.1", 8080)


def test_a_range_opens_its_addresses_on_its_port():
    policy = EgressPolicy.from_text("10.0.0.0/8:443,[fd12::/16]:*")
    policy.check(parse_site("https://10.200.3.4/"))
    policy.check(parse_site("http://[fd12::1]:9999/"))
    for text in ("http://10.200.3.4/", "http://11.0.0.1:9999/", "http://[fd13::1]/"):
        with pytest.raises(EgressDenied):
            policy.check(parse_site(text))


@pytest.mark.parametrize(
    ("rule", "ip"),
    [
        ("169.254.0.0/16:80", "169.254.169.254"),
        ("100.64.0.0/10:80", "100.100.100.200"),
        ("[fd00::/8]:80", "fd00:ec2::254"),
        ("wiki.example.com:80", "169.254.169.254"),
        ("wiki.example.com:80", "::ffff:10.0.0.1"),
    ],
)
def test_no_wider_entry_opens_metadata_or_disguised_addresses(rule: str, ip: str):
    with pytest.raises(EgressDenied):
        EgressPolicy.from_text(rule).check_socket("wiki.example.com", ip, 80)


@pytest.mark.parametrize(
    "entry",
    [
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:http",
        "10.0.0.1/8:443",
        "10.0.0.0/33:443",
        "0.0.0.0/0:443",
        "0.0.0.0/0:*",
        "[::/0]:*",
        "[::/8]:80",
        "::1:8080",
        "*:80",
        "*",
        "*.com:443",
        "*.co.uk",
        "*.10.0.0.1:80",
        "*corp.example:80",
        "wiki.*.example:80",
        "*.*.corp.example:80",
        "*.:80",
        "fd12::1",
        "http://127.0.0.1:9000",
        "user@localhost:80",
        "127.1:80",
        "169.254.169.254:80",
        "[fd00:ec2::254]:80",
        ":80",
    ],
)
def test_an_entry_that_cannot_be_used_is_named(entry: str):
    with pytest.raises(ConfigurationError) as caught:
        EgressPolicy.from_text(f"localhost:8080,{entry}")
    assert entry in str(caught.value)


def test_the_entries_can_be_shown():
    text = "127.0.0.1:9000,10.0.0.0/8:443,[::1]:80,[fd12::/16]:*,localhost:8080"
    policy = EgressPolicy.from_text(text)
    assert ",".join(policy.entries) == text
    assert EgressPolicy.from_text(",".join(policy.entries)) == policy


def test_more_entries_make_another_policy():
    policy = EgressPolicy()
    wider = policy.with_allowed("127.0.0.1:9000", " 127.0.0.1:9000 ")
    assert policy.entries == ()
    assert wider.entries == ("127.0.0.1:9000",)


def test_a_public_site_cannot_lead_into_an_allowed_range():
    policy = EgressPolicy.from_text("10.0.0.0/8:80").for_site(parse_site("https://example.com"))
    with pytest.raises(EgressDenied):
        policy.check(parse_site("http://10.1.1.1/"))
    with pytest.raises(EgressDenied):
        policy.check_socket("example.com", "10.1.1.1", 80)


def test_a_site_inside_an_allowed_range_may_use_the_whole_range():
    policy = EgressPolicy.from_text("10.0.0.0/8:80,10.0.0.0/8:9000,127.0.0.1:9000")
    own = policy.for_site(parse_site("http://10.1.1.1/"))
    own.check(parse_site("http://10.1.1.1/"))
    own.check(parse_site("http://10.2.2.2/"))
    own.check(parse_site("http://10.2.2.2:9000/"))
    with pytest.raises(EgressDenied):
        own.check(parse_site("http://127.0.0.1:9000/"))


def test_a_site_on_a_port_outside_its_range_keeps_no_rule():
    policy = EgressPolicy.from_text("10.0.0.0/8:443")
    assert policy.for_site(parse_site("http://10.1.1.1/")).entries == ()


def test_a_name_is_own_only_when_it_is_named():
    policy = EgressPolicy.from_text("wiki.example.com:443,127.0.0.1:9000")
    assert policy.is_own(parse_site("https://wiki.example.com"))
    assert policy.is_own(parse_site("http://127.0.0.1:9000"))
    assert not policy.is_own(parse_site("https://www.example.com"))
    assert not policy.is_own(parse_site("http://wiki.example.com"))


def test_the_service_does_not_scan_itself():
    policy = EgressPolicy.from_text("atlas.example.com:443")
    for host in ("Atlas.Example.com", "2606:4700:0::1"):
        policy = policy.with_refused_socket(host, 443)
    with pytest.raises(EgressDenied):
        policy.check(parse_site("https://atlas.example.com"))
    with pytest.raises(EgressDenied):
        policy.check(parse_site("https://[2606:4700::1]/"))
    with pytest.raises(EgressDenied):
        policy.check_socket("other.example.com", "2606:4700::1", 443)


def test_the_service_does_not_scan_the_socket_it_listens_on():
    policy = EgressPolicy.from_text("127.0.0.1:*,localhost:*,[::1]:*")
    policy = policy.with_refused_socket("127.0.0.1", 8000).with_refused_socket("::1", 8000)
    for text in ("http://127.0.0.1:8000/", "http://[::1]:8000/"):
        with pytest.raises(EgressDenied):
            policy.check(parse_site(text))
    with pytest.raises(EgressDenied):
        policy.check_socket("localhost", "127.0.0.1", 8000)
    assert permits(policy.check, parse_site("http://127.0.0.1:8001/"))
    assert permits(policy.check_socket, "localhost", "127.0.0.1", 8001)


@pytest.mark.parametrize(
    "address", ["::127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1"]
)
def test_no_rule_opens_ipv4_inside_ipv6(address: str):
    with pytest.raises(ConfigurationError):
        EgressPolicy.from_text(f"[{address}]:80")
    with pytest.raises(EgressDenied):
        EgressPolicy.from_text("[2000::/3]:*").check_socket("site.example.com", address, 80)


def test_the_loopback_address_of_ipv6_can_be_opened():
    site = parse_site("http://[::1]/")
    opened = EgressPolicy.from_text("[::1]:80")
    assert permits(opened.check, site)
    assert permits(opened.check_socket, site.host, "::1", 80)
    assert not permits(EgressPolicy().check, site)
