"""Parses addresses in requests; errors name the field that contains them."""

from __future__ import annotations

from siteatlas.api.problems import FieldRefused
from siteatlas.errors import AddressError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy


def checked_site(text: str, policy: EgressPolicy) -> WebAddress:
    """A site that may be contacted; AddressError tells why not."""
    address = parse_site(text)
    policy.for_site(address).require(address)
    return address


def site_at(pointer: str, text: str, policy: EgressPolicy) -> WebAddress:
    """As `checked_site`; a refusal names the place in the request."""
    try:
        return checked_site(text, policy)
    except AddressError as error:
        raise FieldRefused((pointer, error)) from error
