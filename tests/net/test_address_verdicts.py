"""Inputs and verdicts: every row of the safety table, read and judged by the default policy."""

from __future__ import annotations

import pytest

from siteatlas.errors import AddressError, EgressDenied
from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.egress import EgressPolicy
from tests.fixtures.egress import permits
from tests.net.verdicts import ALLOWED, DENIED, REFUSED, WITHOUT_SCHEME


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
    assert permits(EgressPolicy.from_text("").check, parse_site(text))


@pytest.mark.parametrize(
    "text", rows({n: t for n, t in ALLOWED.items() if n not in WITHOUT_SCHEME})
)
def test_an_ordinary_address_is_allowed_in_documents_too(text: str):
    assert permits(EgressPolicy.from_text("").check, parse_url(text, "https://example.com/"))


def test_every_denial_gives_the_same_answer():
    messages = set()
    for text in DENIED.values():
        with pytest.raises(EgressDenied) as caught:
            EgressPolicy().check(parse_site(text))
        messages.add(str(caught.value))
    assert messages == {EgressDenied().message}
