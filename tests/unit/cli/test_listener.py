"""The socket of the service: loopback only, refused in words when taken."""

from __future__ import annotations

import socket

import pytest

from siteatlas.cli.hosting.listener import base_url, listen
from siteatlas.errors import BindRefused, PortTaken


def test_port_zero_takes_a_free_port_and_tells_it():
    with listen("127.0.0.1", 0) as listener:
        assert base_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_localhost_is_the_loopback_address():
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_anything_but_loopback_is_refused(host: str):
    with pytest.raises(BindRefused):
        listen(host, 0)
