"""Fuzzes all routes: a real service with stored scans, and requests made from its OpenAPI document.

Schemathesis makes the requests and judges the answers; `schemathesis.toml` says how. The service
works on no jobs meanwhile, so that no made-up address is ever contacted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.commands import Machine, running_demo_sites
from tests.fixtures.embedded import data_directory
from tests.fuzz.hooks import KEY_ID_VARIABLE

FUZZER = str(Path(sys.executable).with_name("st"))
CHOICES = str(Path(__file__).with_name("schemathesis.toml"))
SECONDS = 60
GRACE_SECONDS = 60
# `hooks.py` shortens the requests that wait.
ANSWER_SECONDS = 10
SCANNED_SITES = 2
UNDECIDABLE = "positive_data_acceptance,use_after_free"


def main(arguments: list[str]) -> int:
    """Fuzz for `SECONDS`; the exit code is the fuzzer's. Arguments are handed on to it."""
    with ExitStack() as stack:
        sites = stack.enter_context(running_demo_sites())
        folder = stack.enter_context(data_directory())
        stack.enter_context(EmbeddedServer(folder, announce=lambda _text: None))
        allowed = ",".join(site.host_port for site in sites.values())
        settings = {
            "SITEATLAS_EGRESS_ALLOW": allowed,
            "SITEATLAS_HOST_DELAY": "0",
            # The routes are fuzzed, not the limits before them.
            "SITEATLAS_SUBMITS_PER_MINUTE": "100000",
            "SITEATLAS_READS_PER_MINUTE": "1000000",
            "SITEATLAS_MAX_QUEUED_SCANS": "1000000",
            "SITEATLAS_FAILED_LOGINS_PER_MINUTE": "1000000",
            # Nobody reads the log while the fuzzer runs, and a full pipe would stop the service.
            "SITEATLAS_LOG_LEVEL": "error",
        }
        machine = Machine(folder, settings)
        with machine.service() as service:
            for site in list(sites.values())[:SCANNED_SITES]:
                service.scan(site)
        key = machine.json("keys", "create", "--name", "fuzz", "--scope", "admin")
        with machine.service("--no-scheduler") as service:
            return fuzz(service.address, key, arguments)


def fuzz(address: str, key: dict[str, Any], arguments: list[str]) -> int:
    """Run the fuzzer against a service, with an access key."""
    command = [FUZZER, "--config-file", CHOICES, "run", f"{address}/openapi.json"]
    command += ["--checks", "all", "--exclude-checks", UNDECIDABLE]
    command += ["--header", f"Authorization: Bearer {key['key']}"]
    command += ["--max-time", str(SECONDS), "--request-timeout", str(ANSWER_SECONDS)]
    return subprocess.run(
        [*command, *arguments],
        timeout=SECONDS + GRACE_SECONDS,
        check=False,
        env=os.environ | {KEY_ID_VARIABLE: key["id"]},
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
