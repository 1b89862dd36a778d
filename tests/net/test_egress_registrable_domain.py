"""Hosts that one owner can make at will share one name."""

from __future__ import annotations

import pytest

from siteatlas.net.egress import is_registrable, registrable_domain


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("example.com", "example.com"),
        ("a.b.example.com", "example.com"),
        ("www.example.co.uk", "example.co.uk"),
        ("a.example.com.br", "example.com.br"),
        ("co.uk", "co.uk"),
        ("x.example.de", "example.de"),
        ("mail.web.de", "web.de"),
        ("WWW.Example.COM.", "example.com"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[2001:db8::1]", "2001:db8::1"),
    ],
)
def test_the_registrable_domain_of_a_host(host: str, name: str):
    assert registrable_domain(host) == name


@pytest.mark.parametrize("host", ["example.com", "bmw.de", "a.example.co.uk", "example.gouv.fr"])
def test_a_name_that_somebody_registered_and_those_below_are_registrable(host: str):
    assert is_registrable(host)


@pytest.mark.parametrize(
    "host", ["com", "localhost", "co.uk", "com.au", "gouv.fr", "0.0.1", "127.0.0.1", "2001:db8::1"]
)
def test_suffixes_and_addresses_are_not_registrable(host: str):
    assert not is_registrable(host)
