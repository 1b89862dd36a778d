"""The guard in tests/conftest.py stops connections that leave this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

REACHES_OUT = """
import socket

def test_that_reaches_out_and_forgives():
    with socket.socket() as connection:
        try:
            connection.connect(("192.0.2.1", 80))
        except OSError:
            pass
"""


def test_loopback_can_be_reached():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, peer = server.accept()
        accepted.close()
        assert peer == client.getsockname()


@pytest.mark.slow
def test_a_test_that_reaches_out_fails_even_when_it_forgives_the_refusal(
    project: Path, tmp_path: Path
):
    (tmp_path / "conftest.py").write_text((project / "tests" / "conftest.py").read_text())
    (tmp_path / "test_out.py").write_text(REACHES_OUT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(
        [*command, f"--rootdir={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "tried to connect to another machine" in result.stdout
