"""Inputs and verdicts: every row of the safety table, read and judged by the default policy."""

from __future__ import annotations

import pytest

from siteatlas.errors import AddressError, EgressDenied
from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.egress import EgressPolicy

REFUSED = {
    53: "http://[fe80::1%25eth0]/",
    57: "http://127.1/",
    59: "http://2130706433/",
    61: "http://0x7f.1/",
    62: "http://0177.0.0.1/",
    63: "http://127.00000.0.1/",
    64: "http://0/",
    66: "http://1.2.3.4.5/",
    67: "http://256.1.1.1/",
    68: "http://127.0.0.1./",
    69: "http://①②⑦.⓪.⓪.①/",
    70: "http://127。0。0。1/",
    80: "http://user:pw@example.com/",
    81: "http://example.com@127.0.0.1/",
    83: "http://example.com\\@127.0.0.1/",
    84: "http://127.0.0.1\\.example.com/",
    85: "http://example.com%2f@127.0.0.1/",
    86: "http://%31%32%37.0.0.1/",
    88: "http://exa\tmple.com/",
    89: "http://example.com\r\nX-A: b/",
    92: "http:127.0.0.1",
    95: "ftp://example.com/",
    96: "gopher://127.0.0.1:6379/_FLUSHALL",
    97: "javascript:alert(1)",
    98: "data:text/xml,<urlset/>",
    100: "ws://example.com/",
    105: "http://example.com:0/",
    106: "http://example.com:65536/",
    107: "http://example.com:-1/",
    108: "http://example.com:80:443/",
    109: "http://example.com:８０/",
    112: "http://[v1.127]/",
    113: "http://a..b.com/",
    114: f"http://{'a' * 64}.com/",
    115: f"https://example.com/{'a' * 3000}",
}
DENIED = {
    2: "http://127.255.255.254/",
    3: "http://0.0.0.0/",
    4: "http://0.1.2.3/",
    5: "http://10.0.0.1/",
    9: "http://192.168.1.1/",
    10: "http://100.64.0.1/",
    13: "http://100.100.100.200/",
    14: "http://169.254.169.254/latest/meta-data/",
    16: "http://169.254.0.23/",
    19: "http://192.0.0.8/",
    20: "http://192.0.2.1/",
    23: "http://198.51.100.7/",
    25: "http://224.0.0.1/",
    26: "http://239.255.255.250/",
    27: "http://240.0.0.1/",
    28: "http://255.255.255.255/",
    30: "http://[::]/",
    32: "http://[0:0:0:0:0:0:0:1]/",
    33: "http://[::ffff:127.0.0.1]/",
    34: "http://[::ffff:7f00:1]/",
    36: "http://[::ffff:8.8.8.8]/",
    37: "http://[::127.0.0.1]/",
    38: "http://[::ffff:0:127.0.0.1]/",
    39: "http://[64:ff9b::7f00:1]/",
    40: "http://[64:ff9b::a9fe:a9fe]/",
    41: "http://[64:ff9b:1::a00:1]/",
    42: "http://[2002:7f00:1::]/",
    45: "http://[2001:db8::1]/",
    46: "http://[3fff::1]/",
    47: "http://[5f00::1]/",
    50: "http://[fd00:ec2::254]/",
    51: "http://[fd20:ce::254]/",
    52: "http://[fe80::1]/",
    54: "http://[fec0::1]/",
    72: "http://localhost/",
    73: "http://LOCALHOST./",
    74: "http://foo.localhost/",
    75: "http://metadata.google.internal/",
    77: "http://postgres/",
    82: "http://127.0.0.1#@example.com/",
    101: "http://example.com:22/",
    102: "http://example.com:25/",
    103: "http://example.com:5432/",
    104: "http://example.com:6379/",
}
ALLOWED = {
    8: "http://172.32.0.1/",
    12: "http://100.128.0.1/",
    29: "http://1.1.1.1/",
    56: "http://[2606:4700:4700::1111]/",
    116: "example.com",
    117: "example.com:8080/x",
    118: "HTTP://EXAMPLE.COM/",
}
WITHOUT_SCHEME = {116, 117}


def rows(table: dict[int, str]) -> list[object]:
    return [pytest.param(text, id=f"row-{number}") for number, text in table.items()]


@pytest.mark.parametrize("text", rows(REFUSED))
def test_a_malformed_address_is_refused_before_any_lookup(text: str):
    with pytest.raises(AddressError) as caught:
        parse_site(text)
    assert not isinstance(caught.value, EgressDenied)


@pytest.mark.parametrize("text", rows(REFUSED))
def test_a_malformed_address_is_refused_in_documents_too(text: str):
    for base in (None, "https://example.com/sitemap.xml"):
        with pytest.raises(AddressError):
            parse_url(text, base)


@pytest.mark.parametrize("text", rows(DENIED))
def test_a_forbidden_address_is_denied_by_the_policy(text: str):
    for address in (parse_site(text), parse_url(text, "https://example.com/")):
        with pytest.raises(EgressDenied):
            EgressPolicy.from_text("").check(address)


@pytest.mark.parametrize("text", rows(ALLOWED))
def test_an_ordinary_address_is_allowed(text: str):
    EgressPolicy.from_text("").check(parse_site(text))


@pytest.mark.parametrize(
    "text", rows({n: t for n, t in ALLOWED.items() if n not in WITHOUT_SCHEME})
)
def test_an_ordinary_address_is_allowed_in_documents_too(text: str):
    EgressPolicy.from_text("").check(parse_url(text, "https://example.com/"))


def test_every_denial_gives_the_same_answer():
    messages = set()
    for text in DENIED.values():
        with pytest.raises(EgressDenied) as caught:
            EgressPolicy().check(parse_site(text))
        messages.add(str(caught.value))
    assert messages == {"This address may not be contacted."}
