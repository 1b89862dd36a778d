"""Laws that hold for every address and every rule, whatever is made up."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.errors import AddressError, ConfigurationError, EgressDenied
from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.response import MAX_RETRY_AFTER_SECONDS, retry_after_seconds

PIECES = st.sampled_from(
    [
        *("http://", "https://", "HTTP:", "//", "/", "\\", "@", ":", "#", "?", "%", "[", "]", "."),
        *("example.com", "127.0.0.1", "0x7f", "::1", "localhost", "①", "。", "xn--", "ü", "\t"),
        *("80", "65536", "-1", "..", "a" * 64, "\u202e", "\x00", "\ufeff", "&", "=", " "),
    ]
)
TEXT = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=9).map("".join))
LABEL = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
HOST = st.lists(LABEL, min_size=2, max_size=4).map(lambda labels: ".".join([*labels, "com"]))
PATH = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(TEXT)
def test_any_text_is_an_address_or_an_address_error(text):
    for parse in (parse_site, parse_url, lambda t: parse_url(t, "https://base.example/a/b?c")):
        try:
            address = parse(text)
        except AddressError:
            continue
        again = parse_url(address.url)
        assert again == address
        assert address.url.isascii()
        assert address.scheme in {"http", "https"}
        assert "@" not in address.origin
        assert address.url == address.origin + address.path
        assert "#" not in address.url


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(HOST, PATH)
def test_an_ordinary_address_is_always_read(host, path):
    text = f"https://{host}/{path.replace(chr(92), '/')}".rstrip()
    address = parse_url(text)
    assert (address.host, address.scheme) == (host, "https")


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_no_ipv4_address_passes_that_python_knows_as_private(ip):
    try:
        EgressPolicy().check_socket("site.example.com", str(ip), 443)
    except EgressDenied:
        return
    assert not (ip.is_private)
    assert not (ip.is_loopback)
    assert not (ip.is_multicast)
    assert not (ip.is_reserved)
    assert not (ip.is_link_local)
    assert not (ip.is_unspecified)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.one_of(
        st.integers(0, 2**128 - 1),
        st.integers(0, 2**32 - 1).map(lambda n: (0xFFFF << 32) + n),
        st.integers(0, 2**32 - 1).map(lambda n: (0x64FF9B << 96) + n),
        st.integers(0, 2**32 - 1).map(lambda n: (0x2002 << 112) + (n << 80)),
    ).map(IPv6Address)
)
def test_no_ipv6_address_passes_that_hides_an_ipv4_one(ip):
    try:
        EgressPolicy().check_socket("site.example.com", str(ip), 443)
    except EgressDenied:
        return
    assert ip.ipv4_mapped is None
    assert ip.sixtofour is None
    assert ip.teredo is None
    assert not (ip.is_private)
    assert not (ip.is_loopback)
    assert not (ip.is_multicast)
    assert not (ip.is_link_local)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_allow_list_is_read_or_refused_and_never_opens_metadata(text):
    try:
        policy = EgressPolicy.from_text(text)
    except ConfigurationError:
        return
    with pytest.raises(EgressDenied):
        policy.check(parse_url("http://169.254.169.254/"))


@given(st.one_of(st.text(max_size=40), st.integers().map(str)))
def test_any_retry_after_is_bounded_or_unreadable(text):
    seconds = retry_after_seconds(text)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS
