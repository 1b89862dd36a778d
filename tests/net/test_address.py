"""What a person typed becomes one canonical address, or a refusal that says why."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from siteatlas.errors import (
    AddressCredentials,
    AddressEmpty,
    AddressError,
    AddressScheme,
    AddressTooLong,
)
from siteatlas.net.address import MAX_ADDRESS_CHARS, WebAddress, parse_site, parse_url

BASE = "https://example.com/maps/index.xml?x=1"

hosts = st.sampled_from(
    [
        "example.com",
        "EXAMPLE.com.",
        "münchen.de",
        "127.0.0.1",
        "[::1]",
        "[2606:4700::1]",
        "xn--mnchen-3ya.de",
        "a_b.example",
        "1.2.3",
        "ｅ.com",
        "",
    ]
)
addresses = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "http://", "https://", "HTTPS://", "//", "http:", "ftp://"]),
    hosts,
    st.sampled_from(["", ":80", ":443", ":8080", ":0", ":99999", ":"]),
    st.text(max_size=30).map(lambda text: f"/{text}"),
)


@given(st.one_of(st.text(max_size=80), addresses))
@example("https://example.com/?")
@example("http://example.com/a/%2e%2E/b//c/..;x?é=\\#'\"")
@example("http://[::ffff:1.2.3.4]:8080/|^`{}[]")
def test_any_text_is_refused_or_gives_an_address_that_stays_itself(text: str):
    try:
        address = parse_site(text)
    except AddressError:
        return
    assert parse_site(address.url) == address
    assert parse_url(address.url) == address
    assert address.url.isascii()
    assert address.url.isprintable()
    assert address.url == address.origin + address.path


@given(addresses)
def test_the_client_connects_to_the_host_that_was_checked(text: str):
    try:
        address = parse_site(text)
    except AddressError:
        return
    sent = URL(address.url, encoded=True)
    assert (sent.scheme, sent.raw_host, sent.port) == (address.scheme, address.host, address.port)
    assert sent.raw_path_qs == address.path
    assert sent.user is None


@given(st.text(max_size=60))
def test_a_relative_reference_never_leaves_its_host_unseen(text: str):
    try:
        address = parse_url(text, BASE)
    except AddressError:
        return
    names_a_host = text.strip(" \t\r\n").startswith("//") or "://" in text
    assert names_a_host or address.origin == "https://example.com"
    assert parse_url(address.url) == address


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("  example.com \n", "https://example.com/"),
        ("HTTP://EXAMPLE.COM:80/A?b#c", "http://example.com/A?b"),
        ("https://example.com:443", "https://example.com/"),
        ("example.com.", "https://example.com/"),
        ("münchen.de/straße", "https://xn--mnchen-3ya.de/stra%C3%9Fe"),
        ("http://example.com/a/../b", "http://example.com/b"),
        ("http://example.com/a b", "http://example.com/a%20b"),
        ("http://example.com/?", "http://example.com/"),
        ("http://example.com?q=\\", "http://example.com/?q=\\"),
        ("[::1]:8080", "https://[::1]:8080/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("http://my_shop.example.com", "http://my_shop.example.com/"),
    ],
)
def test_an_address_has_one_canonical_form(text: str, url: str):
    assert parse_site(text).url == url


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", AddressEmpty),
        (" \t\r\n", AddressEmpty),
        ("a" * (MAX_ADDRESS_CHARS + 1), AddressTooLong),
        ("example.com/" + "é" * 1000, AddressTooLong),
        ("user@example.com", AddressCredentials),
        ("user:pw@example.com", AddressCredentials),
        ("https://user@example.com", AddressCredentials),
        ("mailto:someone", AddressScheme),
        ("file:///etc/passwd", AddressScheme),
        ("tcp://example.com", AddressScheme),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, error: type[AddressError]):
    with pytest.raises(error):
        parse_site(text)


@pytest.mark.parametrize(
    "text",
    [
        "https:/example.com",
        "https:///example.com",
        "//example.com",
        "http://example.com:080/",
        "http://example.com:/",
        "http://-a.com",
        "http://a-.com",
        "http://exam\u00adple.com",
        "http://ｅxample.com",
        "http://example\u3000.com",
        "http://example\u200b.com",
        "http://example.com\x00/",
        "http://example.com/\x7f",
        "http://example.com/a\nb",
        "http://example.com/\ud800",
        "http://example.com\\path",
        "http://example.com/a\\b",
        "http://exa%6Dple.com",
        "http://example.com..",
        "http://.example.com",
        "http://.",
        "http://1.2.3.0x4",
        "http://example.0x7f",
        "http://[::1",
        "http://::1/",
        "http://[127.0.0.1]/",
        "http://[::1]x/",
        "http://exam<ple.com",
        f"http://{'a.' * 127}com",
        "?",
        "#",
        "..",
    ],
)
def test_what_parsers_disagree_about_is_refused(text: str):
    with pytest.raises(AddressError):
        parse_site(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("child.xml", "https://example.com/maps/child.xml"),
        ("/child.xml", "https://example.com/child.xml"),
        ("../child.xml", "https://example.com/child.xml"),
        ("?page=2", "https://example.com/maps/index.xml?page=2"),
        ("#top", BASE),
        ("//cdn.example.com/x", "https://cdn.example.com/x"),
        ("http://other.example.com", "http://other.example.com/"),
        ("./a:b", "https://example.com/maps/a:b"),
    ],
)
def test_a_reference_is_resolved_against_its_document(text: str, url: str):
    assert parse_url(text, BASE).url == url


@pytest.mark.parametrize("text", ["///10.0.0.1/", "\\\\10.0.0.1\\x", "/\\10.0.0.1", "http:x", ""])
def test_a_reference_that_hides_its_host_is_refused(text: str):
    with pytest.raises(AddressError):
        parse_url(text, BASE)


def test_a_reference_without_a_document_must_be_complete():
    with pytest.raises(AddressError):
        parse_url("example.com/sitemap.xml")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("https://www.example.com/x", "example.com"),
        ("http://example.com", "example.com"),
        ("www.www.example.com", "www.example.com"),
        ("www.com", "www.com"),
        ("http://example.com:8080", "example.com:8080"),
        ("https://example.com:443", "example.com"),
        ("example.com:443", "example.com:443"),
        ("http://127.0.0.1:9000/", "127.0.0.1:9000"),
        ("http://[::1]:9000/", "[::1]:9000"),
    ],
)
def test_the_domain_is_the_key_of_the_site(text: str, domain: str):
    assert parse_site(text).domain == domain


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://www.example.com/x?y", "https://www.example.com"),
        ("http://example.com:8080/x", "http://example.com:8080"),
        ("http://[::1]/", "http://[::1]"),
    ],
)
def test_the_origin_leaves_out_the_default_port(text: str, origin: str):
    assert parse_site(text).origin == origin


def test_the_parts_of_an_address_can_be_read():
    assert parse_site("example.com/a?b=c") == WebAddress(
        url="https://example.com/a?b=c",
        scheme="https",
        host="example.com",
        port=443,
        path="/a?b=c",
    )
    assert not parse_site("example.com").scheme_given
    assert parse_site("https://example.com").scheme_given


def test_only_the_home_page_is_the_root_of_a_site():
    assert parse_site("example.com").is_site_root
    assert not parse_site("example.com/?a").is_site_root
    assert not parse_site("example.com/sitemap.xml").is_site_root
