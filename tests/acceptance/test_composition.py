"""docker-compose.yml, without an engine: its commands as separate users in separate networks."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from siteatlas.access.keys import generate_key
from siteatlas.storage.embedded.files import installed_programs
from tests.fixtures.commands import COMMAND
from tests.fixtures.embedded import data_directory
from tests.fixtures.namespaces import Network, can_make_namespaces, connected_machines

pytestmark = [pytest.mark.slow, pytest.mark.pgbouncer, pytest.mark.timeout(400)]

PASSWORD = "p@ss/w%rd 'quoted'"
IMAGE_USER = 10_001
SERVER_USER = 65_534
POOLER_USER = 70_002
STRANGER = 70_003
SITE_PORT = 8080
POOLER_SETTINGS = """\
[databases]
siteatlas = host=db port=5432 dbname=siteatlas

[pgbouncer]
listen_addr = *
listen_port = 5432
unix_socket_dir =
auth_type = {AUTH_TYPE}
auth_file = {folder}/users.txt
pool_mode = {POOL_MODE}
default_pool_size = {DEFAULT_POOL_SIZE}
max_client_conn = {MAX_CLIENT_CONN}
"""
# What somebody on another machine does: look without a key, then submit a scan with it and wait.
OUTSIDE = """
import json, sys, time, urllib.error, urllib.request
address, site, key = sys.argv[1:]

def ask(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers["Content-Type"] = "application/json"
    request = urllib.request.Request(address + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None

until = time.monotonic() + 90
while ask("/health")[0] != 200 and time.monotonic() < until:
    time.sleep(0.3)
result = {"without_key": ask("/api/v3/sitemap/scan", {"base_url": site})[0]}
bearer = {"Authorization": "Bearer " + key}
result["submitted"], job = ask("/api/v3/sitemap/scan", {"base_url": site}, **bearer)
while job and time.monotonic() < until:
    status, result["job"] = ask(job["status_url"], **bearer)
    if result["job"]["status"] in ("completed", "failed", "cancelled"):
        break
    time.sleep(0.3)
result["workers"] = 0
while result["workers"] < 2 and time.monotonic() < until:
    request = urllib.request.Request(address + "/metrics", headers=bearer)
    text = urllib.request.urlopen(request, timeout=10).read().decode()
    result["workers"] = float(text.split("\\nsiteatlas_workers ")[1].split()[0])
    time.sleep(0.5)
print(json.dumps(result))
"""


@pytest.fixture
def network(pgbouncer_program: str) -> Iterator[Network]:
    """The machines of the composition, one more for a site, and one outside."""
    if not can_make_namespaces():
        reason = "network namespaces need root and iproute2"
        if os.environ.get("SITEATLAS_REQUIRE_NAMESPACES"):
            pytest.fail(reason)
        pytest.skip(reason)
    names = ["db", "pgbouncer", "migrate", "api", "worker-1", "worker-2", "site", "outside"]
    with data_directory() as folder, connected_machines(folder, names) as machines:
        yield machines


@pytest.fixture
def services(project: Path) -> dict[str, dict[str, Any]]:
    composition = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = composition["services"]
    return found


def owned(path: Path, user: int, mode: int = 0o700) -> Path:
    """A path that belongs to a user of one of the machines."""
    os.chown(path, user, user)
    path.chmod(mode)
    return path


def environment_of(service: dict[str, Any], network: Network) -> dict[str, str]:
    """The variables of a service, with those of the shell filled in as Compose does."""
    site = f"{network.address('site')}:{SITE_PORT}"
    filled = {
        name: re.sub(
            r"\$\{(\w+)[^}]*\}", lambda m: {"POSTGRES_PASSWORD": PASSWORD}.get(m[1], ""), v
        )
        for name, v in service["environment"].items()
    }
    # The private address of the test's site, as an operator would allow it.
    return filled | {"SITEATLAS_EGRESS_ALLOW": site, "SITEATLAS_LOG_FORMAT": "json"}


def start_database(network: Network) -> None:
    """What the image `postgres` does: a server for everybody with the password."""
    data = owned_directory(network, "db", SERVER_USER)
    password = network.folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    owned(password, SERVER_USER, 0o400)
    programs = installed_programs()
    initdb = [programs.path("initdb"), "-D", str(data / "pg"), "--username=siteatlas"]
    initdb += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
    assert network.run("db", SERVER_USER, initdb, {})[0] == 0, network.log("db")
    with (data / "pg" / "pg_hba.conf").open("a") as rules:
        rules.write("host all all all scram-sha-256\n")
    create = f"echo 'CREATE DATABASE siteatlas' | {programs.path('postgres')} --single"
    code, _ = network.run(
        "db", SERVER_USER, ["sh", "-c", f"{create} -D {data / 'pg'} postgres"], {}
    )
    assert code == 0, network.log("db")
    listening = ["-c", "listen_addresses=*", "-c", f"unix_socket_directories={data}"]
    server = [programs.path("postgres"), "-D", str(data / "pg"), *listening]
    network.start("db", SERVER_USER, server, {})


def owned_directory(network: Network, name: str, user: int) -> Path:
    folder = network.folder / f"of-{name}"
    folder.mkdir()
    return owned(folder, user)


def start_pooler(network: Network, program: str, service: dict[str, Any]) -> None:
    """What the image of PgBouncer does with its variables."""
    folder = owned_directory(network, "pgbouncer", POOLER_USER)
    settings = POOLER_SETTINGS.format(folder=folder, **service["environment"])
    (folder / "pgbouncer.ini").write_text(settings, encoding="utf-8")
    (folder / "users.txt").write_text(f'"siteatlas" "{PASSWORD}"\n', encoding="utf-8")
    for path in folder.iterdir():
        owned(path, POOLER_USER, 0o400)
    network.start("pgbouncer", POOLER_USER, [program, str(folder / "pgbouncer.ini")], {})


def start_site(network: Network) -> str:
    """A site with one sitemap; gives its address."""
    folder = owned_directory(network, "site", STRANGER)
    base = f"http://{network.address('site')}:{SITE_PORT}"
    entries = "".join(f"<url><loc>{base}/{number}</loc></url>" for number in range(50))
    urlset = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
    (folder / "sitemap.xml").write_text(urlset, encoding="utf-8")
    (folder / "robots.txt").write_text(f"Sitemap: {base}/sitemap.xml\n", encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)
    serve = [sys.executable, "-m", "http.server", str(SITE_PORT), "--directory", str(folder)]
    network.start("site", STRANGER, serve, {})
    return base


def command_of(service: dict[str, Any]) -> list[str]:
    return [COMMAND, *service["command"]]


def test_a_scan_from_outside_runs_through_the_composition(
    network: Network, services: dict[str, dict[str, Any]], pgbouncer_program: str
):
    start_database(network)
    start_pooler(network, pgbouncer_program, services["pgbouncer"])
    site = start_site(network)
    migrate = services["migrate"]
    environment = environment_of(migrate, network)
    code, _ = network.run("migrate", IMAGE_USER, command_of(migrate), environment)
    assert code == 0, network.log("migrate")

    key = generate_key().text.get_secret_value()
    secret = network.folder / "admin-key"
    secret.write_text(key, encoding="utf-8")
    secret.chmod(0o444)
    environment = environment_of(services["api"], network)
    assert environment["SITEATLAS_ADMIN_KEY_FILE"] == "/run/secrets/admin-key"
    environment["SITEATLAS_ADMIN_KEY_FILE"] = str(secret)
    network.start("api", IMAGE_USER, command_of(services["api"]), environment)
    worker = services["worker"]
    for number in range(1, worker["deploy"]["replicas"] + 1):
        environment = environment_of(worker, network)
        network.start(f"worker-{number}", IMAGE_USER, command_of(worker), environment)

    address = f"http://{network.address('api')}:8000"
    visit = [sys.executable, "-c", OUTSIDE, address, site, key]
    code, printed = network.run("outside", STRANGER, visit, {})
    assert code == 0, network.log("outside") + network.log("api")
    result = json.loads(printed)
    assert (result["without_key"], result["submitted"]) == (401, 202)
    assert result["job"]["status"] == "completed", result
    assert result["job"]["result_data"]["url_count"] == 50, result
    assert result["workers"] == 2
