"""Who may enter, as an operator meets it: `siteatlas keys` and `siteatlas serve` as processes."""

from __future__ import annotations

import json
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from siteatlas.cli.hosting.connections import CREATE_KEY, NO_ADMIN_KEY
from tests.fixtures.commands import TIMEOUT_SECONDS, Machine
from tests.fixtures.waiting import block_until

pytestmark = pytest.mark.slow

JOBS = "/api/v3/jobs"


def status_of(address: str, path: str, key: str | None = None) -> int:
    """The status of a GET with this key."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(
        address.replace("0.0.0.0", "127.0.0.1") + path, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(json.loads(error.read())["status"])


@contextmanager
def served(machine: Machine, *arguments: str) -> Iterator[str]:
    """The address of a running service without a scheduler."""
    with machine.process("serve", "--port", "0", "--no-scheduler", *arguments) as started:
        assert started.stdout is not None
        yield started.stdout.readline().strip()


@pytest.fixture(autouse=True)
def open_installation(machine: Machine) -> Iterator[None]:
    yield
    machine.run("keys", "reset", "--yes")


def create(machine: Machine, *arguments: str) -> str:
    return str(machine.json("keys", "create", "--name", "test", *arguments)["key"])


def refused(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.run("serve", "--port", "0", *arguments)


@pytest.mark.full
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "example.com"])
def test_other_addresses_than_loopback_need_a_key(machine: Machine, host: str):
    result = refused(machine, "--host", host)
    assert result.returncode == 2
    assert result.stderr.startswith(f"siteatlas: bind_refused: {host} ")
    assert "siteatlas keys create --name admin --scope admin" in result.stderr


@pytest.mark.full
def test_an_insecure_service_warns_and_serves_everyone(machine: Machine):
    with machine.process(
        "serve", "--port", "0", "--no-scheduler", "--host", "0.0.0.0", "--insecure-no-auth"
    ) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        assert "WARNING: --insecure-no-auth" in started.stderr.readline()
        address = started.stdout.readline().strip()
        assert status_of(address, JOBS) == 200


def test_with_a_key_the_service_listens_everywhere_and_asks_for_it(machine: Machine):
    key = create(machine, "--scope", "read")
    with served(machine, "--host", "0.0.0.0") as address:
        assert address.startswith("http://0.0.0.0:")
        for path in (JOBS, "/docs", "/openapi.json", "/metrics", "/health/database", "/"):
            assert status_of(address, path) == 401, path
        assert status_of(address, JOBS, key) == 200
        assert status_of(address, "/health") == 200
        assert status_of(address, "/api/v3/keys", key) == 403


@pytest.mark.full
def test_a_key_does_what_insecure_no_auth_would_undo(machine: Machine):
    create(machine)
    with served(machine, "--host", "0.0.0.0", "--insecure-no-auth") as address:
        assert status_of(address, JOBS) == 401


@pytest.mark.full
def test_a_running_service_closes_and_opens_with_the_keys(machine: Machine):
    with served(machine) as address:
        assert status_of(address, JOBS) == 200
        key = create(machine, "--scope", "admin", "--expires", "1h")
        block_until(lambda: status_of(address, JOBS) == 401, seconds=5)
        assert status_of(address, JOBS, key) == 200
        assert machine.run("keys", "revoke", key.split("_")[1]).returncode == 0
        assert status_of(address, JOBS, key) == 401
        assert status_of(address, JOBS) == 401
        assert machine.run("keys", "reset", "--yes").returncode == 0
        block_until(lambda: status_of(address, JOBS) == 200, seconds=5)
        assert status_of(address, JOBS, key) == 401


def test_a_key_is_printed_once_and_listed_without_its_secret(machine: Machine):
    result = machine.run(
        "keys", "create", "--name", "laptop", "--scope", "read", "--scope", "scan", "--user", "ann"
    )
    key = result.stdout.strip()
    assert "not shown again" in result.stderr
    assert "every request" in result.stderr
    assert "every request" not in machine.run("keys", "create", "--name", "second").stderr
    listed = machine.run("keys", "list", "--json").stdout
    (item,) = [one for one in json.loads(listed)["items"] if one["id"] == key.split("_")[1]]
    assert (item["name"], item["user"], item["scopes"]) == ("laptop", "ann", ["read", "scan"])
    assert key.split("_")[2] not in listed


@pytest.mark.full
def test_a_key_without_an_admin_key_comes_with_a_warning(machine: Machine):
    created = machine.run("--quiet", "keys", "create", "--name", "nightly")
    assert created.returncode == 0
    assert created.stderr.splitlines() == [
        f"{NO_ADMIN_KEY} Create one on this machine: {CREATE_KEY}"
    ]
    admin = machine.run(*CREATE_KEY.split()[1:])
    again = machine.run("keys", "create", "--name", "weekly")
    assert NO_ADMIN_KEY not in admin.stderr + again.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "--name", "x", "--expires", "soon"), "90d"),
        (("create", "--name", " "), "printable"),
        (("create", "--name", "x", "--scope", "root"), "root"),
        (("reset",), "--yes"),
    ],
)
def test_misuse_is_refused_with_a_message(machine: Machine, arguments: tuple[str, ...], words: str):
    result = machine.run("keys", *arguments)
    assert result.returncode == 2
    assert words in result.stderr


def test_an_unknown_key_is_named(machine: Machine):
    result = machine.run("keys", "revoke", "nosuchid")
    assert result.returncode == 1
    assert "key_not_found" in result.stderr
    assert "siteatlas keys list" in result.stderr


@pytest.mark.full
def test_the_key_of_a_deployment_comes_from_a_file(machine: Machine, tmp_path: Path):
    file = tmp_path / "admin.key"
    file.write_text(machine.run("keys", "generate").stdout, encoding="utf-8")
    file.chmod(stat.S_IRUSR)
    key = file.read_text(encoding="utf-8").strip()
    deployed = Machine(machine.data_dir, {**machine.extra, "SITEATLAS_ADMIN_KEY_FILE": str(file)})
    for _ in range(2):
        with served(deployed, "--host", "0.0.0.0") as address:
            assert status_of(address, "/api/v3/keys", key) == 200
            assert status_of(address, JOBS) == 401
    machine.run("keys", "revoke", key.split("_")[1])
    result = refused(deployed)
    assert result.returncode == 2
    assert "revoked" in result.stderr
    assert key not in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("content", ["", "changeme", "sa_abcdefgh_tooshort"])
def test_a_file_without_a_key_is_refused(machine: Machine, tmp_path: Path, content: str):
    file = tmp_path / "admin.key"
    file.write_text(content, encoding="utf-8")
    deployed = Machine(machine.data_dir, {**machine.extra, "SITEATLAS_ADMIN_KEY_FILE": str(file)})
    result = refused(deployed)
    assert result.returncode == 2
    assert "siteatlas keys generate" in result.stderr


def test_behind_a_unix_socket_only_the_proxy_names_the_client(machine: Machine, tmp_path: Path):
    path = tmp_path / "service.sock"
    open_to_all = machine.run("serve", "--uds", str(path), "--no-scheduler")
    assert open_to_all.returncode == 2
    assert CREATE_KEY in open_to_all.stderr
    key = create(machine, "--scope", "admin")
    proxied = Machine(machine.data_dir, {**machine.extra, "SITEATLAS_TRUSTED_PROXIES": "unix"})
    with served(proxied, "--uds", str(path)) as address:
        assert address == f"unix:{path}"
        transport = httpx.HTTPTransport(uds=str(path))
        headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "192.0.2.7"}
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            made = client.post(
                "/api/v3/keys", json={"name": "bob", "scopes": ["read"]}, headers=headers
            )
            assert made.status_code == 201
            audit = client.get("/api/v3/audit", headers=headers).json()["items"]
            assert audit[0]["address"] == "192.0.2.7"
            assert client.get(JOBS).status_code == 401


def test_a_key_file_is_written_for_its_owner_and_never_overwritten(
    machine: Machine, tmp_path: Path
):
    file = tmp_path / "admin.key"
    assert machine.run("keys", "generate", "--output", str(file)).returncode == 0
    key = file.read_text(encoding="utf-8").strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = machine.run("keys", "generate", "--output", str(file))
    assert (again.returncode, again.stdout) == (1, "")
    assert file.read_text(encoding="utf-8").strip() == key


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_a_key_file_that_others_can_read_is_warned_about(
    machine: Machine, tmp_path: Path, mode: int, warned: bool
):
    file = tmp_path / "admin.key"
    machine.run("keys", "generate", "--output", str(file))
    file.chmod(mode)
    deployed = Machine(machine.data_dir, {**machine.extra, "SITEATLAS_ADMIN_KEY_FILE": str(file)})
    with deployed.process("serve", "--port", "0", "--no-scheduler") as started:
        assert started.stdout is not None
        started.stdout.readline()
        started.terminate()
        assert started.stderr is not None
        assert (f"chmod o-r {file}" in started.stderr.read()) is warned
