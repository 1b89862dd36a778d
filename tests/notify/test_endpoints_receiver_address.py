"""The address that a webhook sends to."""

from __future__ import annotations

import pytest

from siteatlas.errors import AddressScheme
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.endpoints import checked_url


def test_a_receiver_with_another_scheme_is_refused_as_a_receiver():
    with pytest.raises(AddressScheme) as raised:
        checked_url("ftp://hooks.example.com/", EgressPolicy.from_text(""))
    assert raised.value.message == "Messages can be sent to http and https addresses only."
