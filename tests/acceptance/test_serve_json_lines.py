"""With SITEATLAS_LOG_FORMAT=json, every line on stderr is an object, however a command ends."""

from __future__ import annotations

import json
import signal

import pytest

from tests.fixtures.commands import TIMEOUT_SECONDS, Machine
from tests.fixtures.embedded import data_directory

JSON = {"SITEATLAS_LOG_FORMAT": "json"}
NO_DATABASE = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "SITEATLAS_DATABASE_WAIT_SECONDS": "0",
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        (["serve", "--port", "0"], NO_DATABASE, "database_unavailable"),
        (["worker", "--processes", "2"], NO_DATABASE, "database_unavailable"),
        (["serve"], {"SITEATLAS_PORT": "odd"}, "configuration_invalid"),
        (["serve", "--host", "0.0.0.0"], {}, "bind_refused"),
        (["serve", "--no-such-option"], {}, "input_invalid"),
        (["sevre"], {}, "input_invalid"),
    ],
)
def test_a_command_that_cannot_start_says_so_in_json(
    arguments: list[str], environment: dict[str, str], code: str
):
    with data_directory() as folder:
        ended = Machine(folder, JSON | environment).run(*arguments)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode in {2, 4}
    assert code in {line.get("error_code") for line in lines}


def test_a_service_says_everything_in_json_from_start_to_stop():
    with data_directory() as folder:
        machine = Machine(folder, JSON)
        with machine.process("serve", "--port", "0") as service:
            assert service.stdout is not None
            service.stdout.readline()
            service.send_signal(signal.SIGTERM)
            _, words = service.communicate(timeout=TIMEOUT_SECONDS)
    lines = [json.loads(line) for line in words.splitlines()]
    assert any("Ctrl-C" in line.get("text", "") for line in lines)
