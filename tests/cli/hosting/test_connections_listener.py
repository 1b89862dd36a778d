"""The socket of the service: bound to addresses, not names; an error message if it is in use."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from siteatlas.cli.hosting.connections import (
    base_url,
    is_loopback,
    listen,
    listening,
    local_url,
)
from siteatlas.errors import BindRefused, ConfigurationError, PortTaken
from siteatlas.settings import Settings


def test_port_zero_takes_a_free_port_and_prints_it():
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


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "[::1]"]
)
def test_loopback_addresses_are_known(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "*", "", "192.0.2.1", "example.com", "localhost."]
)
def test_everything_else_counts_as_reachable_by_others(host: str):
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["example.com", "localhost.localdomain", "", "127.1"])
def test_names_are_not_listened_on(host: str):
    with pytest.raises(BindRefused, match="siteatlas keys create"):
        listen(host, 0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("localhost", "http://127.0.0.1:80"),
        ("*", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("192.0.2.1", "http://192.0.2.1:80"),
        ("::", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("2001:db8::1", "http://[2001:db8::1]:80"),
    ],
)
def test_a_service_is_reached_at_the_address_it_listens_on(host: str, url: str):
    assert local_url(host, 80) == url


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_a_unix_socket_is_for_its_owner_and_group(tmp_path: Path):
    path = tmp_path / "service.sock"
    with listening(Settings(socket=path)) as listener:
        assert base_url(listener) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert answers(path)
    assert not path.exists()


def test_a_unix_socket_that_a_killed_service_left_is_taken_over(tmp_path: Path):
    path = tmp_path / "service.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with listening(Settings(socket=path)):
        assert answers(path)


def test_a_unix_socket_in_use_or_another_file_is_left_alone(tmp_path: Path):
    path, file = tmp_path / "service.sock", tmp_path / "file"
    file.write_text("kept", encoding="utf-8")
    with listening(Settings(socket=path)):
        with pytest.raises(ConfigurationError), listening(Settings(socket=path)):
            pass
        with pytest.raises(ConfigurationError), listening(Settings(socket=file)):
            pass
        assert answers(path)
    assert file.read_text(encoding="utf-8") == "kept"
