"""What `siteatlas scan` imports; docs/decisions/0005-settings-and-startup.md says why.

Other commands may import what they like.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Writes the modules that are imported when the first connection is opened, and ends there.
AT_FIRST_CONNECTION = """
import json, os, sys
from siteatlas.cli.main import main

def end(event, arguments):
    if event == "socket.connect":
        os.write(1, json.dumps(sorted(sys.modules)).encode())
        os._exit(0)

sys.addaudithook(end)
sys.argv = ["siteatlas", *sys.argv[1:]]
main()
"""
SITE = "127.0.0.1:9"
WEB_AND_DATABASE = {
    *("fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "asyncpg", "apscheduler"),
    *("prometheus_client", "pyarrow"),
}


@pytest.mark.slow
def test_a_scan_sends_its_first_request_without_web_framework_and_database():
    command = [sys.executable, "-c", AT_FIRST_CONNECTION, "scan", f"http://{SITE}/"]
    result = subprocess.run([*command, "--allow", SITE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout.splitlines()[-1]))
    assert "aiohttp" in loaded
    assert loaded & WEB_AND_DATABASE == set()
