"""Parses addresses in requests; errors name the field that contains them."""

from __future__ import annotations

from siteatlas.api.problems import FieldRefused
from siteatlas.errors import AddressError
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy, parse_allowed_site


def parse_site_field(pointer: str, text: str, policy: EgressPolicy) -> WebAddress:
    """Parse the site address in the field at `pointer`; errors name the field."""
    try:
        return parse_allowed_site(text, policy)
    except AddressError as error:
        raise FieldRefused((pointer, error)) from error
