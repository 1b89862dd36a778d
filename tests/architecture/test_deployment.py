"""Dockerfile and docker-compose.yml fit the project, as far as that shows without an engine."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from siteatlas.settings import DECLARATIONS, environment_name

READ_BY_THE_DRIVER = {"PGPASSWORD"}


@pytest.fixture
def services(project: Path) -> dict[str, dict[str, Any]]:
    composition = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = composition["services"]
    return found


@pytest.fixture
def ours(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The services that run our own image."""
    return {name: service for name, service in services.items() if "build" in service}


@pytest.fixture
def dockerfile(project: Path) -> str:
    return (project / "Dockerfile").read_text(encoding="utf-8")


def copied_from_the_checkout(dockerfile: str) -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_composition_has_api_workers_database_and_pooler(services):
    assert {"db", "pgbouncer", "migrate", "api", "worker"} <= set(services)
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["pgbouncer"]["environment"]["POOL_MODE"] == "transaction"


def test_every_service_waited_for_exists(services):
    waits = {name: set(service.get("depends_on", {})) for name, service in services.items()}
    assert {name: missing for name, on in waits.items() if (missing := on - set(services))} == {}


def test_nothing_is_published_beyond_this_machine(services):
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_migrations_go_past_the_pooler_and_all_others_through_it(ours):
    hosts = {
        name: service["environment"]["DATABASE_URL"].rpartition("@")[2].partition(":")[0]
        for name, service in ours.items()
    }
    assert hosts == {"migrate": "db", "api": "pgbouncer", "worker": "pgbouncer"}


def test_there_is_no_default_password(project):
    text = (project / "docker-compose.yml").read_text(encoding="utf-8")
    uses = re.findall(r"\$\{POSTGRES_PASSWORD([^}]*)\}", text)
    assert len(uses) >= 3
    assert [use for use in uses if not use.startswith(":?")] == []


@pytest.mark.parametrize(
    "page", ["README.md", "docker-compose.yml", "Dockerfile", "docs/how-to/deploy.md"]
)
def test_what_was_never_run_is_said_where_it_is_offered(project, page):
    text = (project / page).read_text(encoding="utf-8")
    assert "Docker engine" in text


@pytest.mark.criterion("scheduler-environment")
def test_every_variable_is_a_setting(ours):
    known = {environment_name(field) for field in DECLARATIONS}
    used = {name for service in ours.values() for name in service["environment"]}
    assert used <= known | READ_BY_THE_DRIVER


@pytest.mark.criterion("scheduler-environment")
def test_the_worker_is_given_every_variable_of_the_scheduler(ours):
    names = {environment_name(field) for field in DECLARATIONS}
    of_scheduler = {name for name in names if name.startswith("SITEMAP_SCHEDULER_")}
    assert len(of_scheduler) == 3
    assert of_scheduler <= set(ours["worker"]["environment"])


def test_no_password_is_part_of_a_url(ours):
    urls = [service["environment"]["DATABASE_URL"] for service in ours.values()]
    assert [url for url in urls if "$" in url] == []
    assert all("PGPASSWORD" in service["environment"] for service in ours.values())


def test_the_image_copies_files_that_exist_and_are_in_the_build_context(project, dockerfile):
    context = (project / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = [line.removeprefix("!") for line in context if line.startswith("!")]
    sources = copied_from_the_checkout(dockerfile)
    assert sources
    assert [name for name in sources if not (project / name).exists()] == []
    assert [name for name in sources if not any(fnmatch.fnmatch(name, a) for a in allowed)] == []


def test_the_image_runs_as_a_numbered_user_that_is_not_root(dockerfile):
    users = re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert users
    assert all(int(number) > 0 for number in users[-1])


def test_everything_that_is_installed_is_checked_by_hash(dockerfile):
    installs = re.findall(r"pip install .*", dockerfile)
    unchecked = [i for i in installs if "--require-hashes" not in i and "--no-deps" not in i]
    assert unchecked == []


def test_the_api_is_reached_without_a_relay_and_asks_for_the_key_of_a_secret(services, project):
    assert [name for name, service in services.items() if "network_mode" in service] == []
    api = services["api"]
    assert api["environment"]["SITEATLAS_HOST"] == "0.0.0.0"
    (secret,) = api["secrets"]
    assert api["environment"]["SITEATLAS_ADMIN_KEY_FILE"] == f"/run/secrets/{secret}"
    composition = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))
    assert composition["secrets"] == {secret: {"file": "./secrets/admin-key"}}
    assert "/secrets/" in (project / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_units_run_commands_of_ours_with_settings_that_exist(project):
    known = {environment_name(field) for field in DECLARATIONS}
    units = sorted((project / "deploy" / "systemd").glob("*.service"))
    assert len(units) == 3
    for unit in units:
        text = unit.read_text(encoding="utf-8")
        assert "User=siteatlas" in text
        assert set(re.findall(r"^Environment=(\w+)=", text, re.MULTILINE)) <= known
        assert re.search(r"^ExecStart=.*/siteatlas -q (serve|worker|db backup)", text, re.MULTILINE)


def test_the_files_of_reverse_proxies_name_settings_that_exist(project):
    known = {environment_name(field) for field in DECLARATIONS}
    for path in (project / "deploy").glob("*/*"):
        named = re.findall(r"SITEATLAS_\w+", path.read_text(encoding="utf-8"))
        assert set(named) <= known, path


@pytest.mark.slow
@pytest.mark.parametrize("service", ["migrate", "api", "worker"])
def test_every_command_is_one_of_ours(service, ours):
    command = [sys.executable, "-m", "siteatlas.cli", *ours[service]["command"], "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
