"""What `siteatlas scan` and `siteatlas lint` import; docs/decisions/0005-settings-and-startup.md says why.

Other commands may import what they like.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.documents import urlset

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


AT_THE_END = """
import json, os, sys, atexit
from siteatlas.cli.main import main

atexit.register(lambda: os.write(2, json.dumps(sorted(sys.modules)).encode()))
sys.argv = ["siteatlas", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_lint_of_a_file_needs_neither_network_nor_web_framework_nor_database(tmp_path: Path):
    (tmp_path / "sitemap.xml").write_bytes(urlset("<url><loc>https://a.example/</loc></url>"))
    command = [sys.executable, "-c", AT_THE_END, "lint", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stderr.splitlines()[-1]))
    assert "siteatlas.findings.rules" in loaded
    assert loaded & (WEB_AND_DATABASE | {"aiohttp"}) == set()


@pytest.mark.slow
def test_a_scan_sends_its_first_request_without_web_framework_and_database():
    command = [sys.executable, "-c", AT_FIRST_CONNECTION, "scan", f"http://{SITE}/"]
    result = subprocess.run([*command, "--allow", SITE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout.splitlines()[-1]))
    assert "aiohttp" in loaded
    assert loaded & WEB_AND_DATABASE == set()
