"""What a command imports before it works; docs/decisions/0027-startup-imports.md says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from siteatlas.cli.scan.output import (
    EntryEncoder,
    EntryFilter,
    SiteEncoder,
    encode_csv,
    encode_objects_of_site,
    encode_urls,
)
from siteatlas.net.address import parse_url
from siteatlas.scanner.crawl.readers import DocumentTask, MessageKind, message
from tests.fixtures.documents import urlset_of

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
AT_END = """
import json, sys
from siteatlas.cli.main import main

sys.argv = ["siteatlas", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""
# Reads one document, then writes what is imported and closes the socket, which ends the process.
IN_READER_PROCESS = """
import json, os, socket, sys
from siteatlas.scanner.crawl import reader_process

ours, theirs = socket.socketpair()
sys.argv = ["", str(theirs.detach())]
ours.sendall(bytes.fromhex(os.environ["MESSAGES"]))
ours.shutdown(socket.SHUT_WR)
os._exit = lambda code: print(json.dumps([*sys.modules]))
reader_process.main()
"""
NEEDED_BY_EVERY_SCAN = "import aiohttp, lxml.etree, json, sys; print(json.dumps([*sys.modules]))"

SITE = "127.0.0.1:9"
WEB_AND_DATABASE = {
    *("fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "asyncpg", "apscheduler"),
    "prometheus_client",
}
NOT_IN_READER_PROCESS = {
    *("aiohttp", "asyncio", "ssl", "typer", "click", "rich", "structlog", "pydantic"),
    *("subprocess", "siteatlas.net.client", "siteatlas.settings"),
}
ONLY_IF_USED = {"pydantic", "structlog", "rich", "lxml", "html", "importlib.metadata", "zipfile"}
# Our own modules and those of our dependencies, above what aiohttp and lxml import themselves.
# Python 3.13 itself needs a few more than 3.11.
MAX_OTHER_MODULES = 190
# All of them, those of Python itself and of the XML parser included; a scan has about 480.
MAX_READER_MODULES = 255


def modules_of(program: str, *arguments: str, **environment: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def scan_modules() -> set[str]:
    """The modules of `siteatlas scan` when it sends its first request."""
    return modules_of(AT_FIRST_CONNECTION, "scan", f"http://{SITE}/", "--allow", SITE)


@pytest.mark.slow
def test_a_scan_sends_its_first_request_without_what_it_may_not_need(scan_modules: set[str]):
    assert not scan_modules & (WEB_AND_DATABASE | ONLY_IF_USED)


@pytest.mark.slow
def test_a_scan_imports_few_modules_before_its_first_request(scan_modules: set[str]):
    assert "aiohttp" in scan_modules
    assert len(scan_modules - modules_of(NEEDED_BY_EVERY_SCAN)) <= MAX_OTHER_MODULES


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [["--format", "jsonl"], ["--user-agent", "Test", "--probe", "full", "--only"]],
)
def test_text_and_choices_are_read_without_a_validation_library(options: list[str]):
    url = f"http://{SITE}/sitemap.xml"
    loaded = modules_of(AT_FIRST_CONNECTION, "scan", url, "--allow", SITE, *options)
    assert not loaded & ONLY_IF_USED


@pytest.mark.slow
def test_help_imports_no_network_and_no_parser():
    loaded = modules_of(AT_END, "--help")
    assert not loaded & (WEB_AND_DATABASE | ONLY_IF_USED | {"aiohttp", "asyncio", "ssl"})


@pytest.mark.slow
def test_a_file_is_printed_to_a_pipe_without_rich_and_structlog(tmp_path):
    file = tmp_path / "sitemap.txt"
    file.write_text("https://example.com/\n", encoding="utf-8")
    loaded = modules_of(AT_END, "scan", str(file))
    assert "lxml.etree" in loaded
    assert not loaded & {"rich", "structlog", "pydantic"}


@pytest.mark.slow
@pytest.mark.parametrize("encode", [encode_objects_of_site, encode_csv, encode_urls])
def test_a_reader_process_imports_what_reading_needs_and_nothing_else(encode: EntryEncoder):
    encoder = SiteEncoder("a.example", encode, EntryFilter.of(None, ["*"], []))
    address = parse_url("https://a.example/sitemap.xml")
    task = DocumentTask(address, None, None, "a.example", False, True, encoder)
    messages = [
        message(1, MessageKind.OPEN, task),
        message(1, MessageKind.DATA, data=urlset_of(["https://a.example/"])),
        message(1, MessageKind.END),
    ]
    loaded = modules_of(IN_READER_PROCESS, MESSAGES=b"".join(messages).hex())
    assert {"lxml.etree", "siteatlas.cli.scan.output"} <= loaded
    assert not loaded & (WEB_AND_DATABASE | NOT_IN_READER_PROCESS)
    assert len(loaded) <= MAX_READER_MODULES
