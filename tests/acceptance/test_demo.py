"""What the demo invites to: every command that it prints works as it stands."""

from __future__ import annotations

import json
import shutil
from subprocess import Popen

import pytest

from tests.fixtures.commands import Machine


def words_of(demo: Popen[str]) -> list[str]:
    """The lines that the demo says until it has nothing more to say."""
    assert demo.stderr is not None
    lines = []
    for line in demo.stderr:
        lines.append(line.rstrip("\n"))
        if line.startswith("Ctrl-C"):
            return lines
    pytest.fail("\n".join(lines))


def commands_of(lines: list[str]) -> list[str]:
    """The indented commands, each with its continued lines."""
    text = "\n".join(line for line in lines if line.startswith("  ")).replace("\\\n", " ")
    return [command.strip() for command in text.splitlines()]


def test_every_command_that_the_demo_prints_works(fresh_machine: Machine):
    with fresh_machine.process("demo") as demo:
        scan, post, urls = commands_of(words_of(demo))
        scanned = fresh_machine.execute(["sh", "-c", scan])
        assert (scanned.returncode, "1,200 URLs" in scanned.stderr) == (0, True), scanned.stderr
        stored = fresh_machine.execute(["sh", "-c", urls])
        assert (stored.returncode, len(stored.stdout.splitlines())) == (0, 11), stored.stderr
        if shutil.which("curl"):
            accepted = fresh_machine.execute(["sh", "-c", post])
            assert '"status":"pending"' in accepted.stdout


@pytest.mark.slow
def test_a_changing_site_gives_the_follower_something_to_print(fresh_machine: Machine):
    with fresh_machine.process("demo", "--changing") as demo:
        *_, follow = commands_of(words_of(demo))
        assert follow.endswith("changes --follow")
        command = ["timeout", "25", "sh", "-c", f"exec env {follow} --format jsonl"]
        printed = fresh_machine.execute(command).stdout
    kinds = {json.loads(line)["kind"] for line in printed.splitlines()}
    assert "added" in kinds
