"""The settings of one process: a frozen object, read once, with the origin of each value.

Precedence: flag, environment, `siteatlas.toml`, default. No other module reads the environment.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from siteatlas.errors import ConfigurationError

SETTINGS_FILE = "siteatlas.toml"
MIN_INTERVAL_HOURS = 0.016
MAX_INTERVAL_HOURS = 8760
DEFAULT_MAX_ATTEMPTS = 5


def default_data_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where the embedded server keeps its files; for root, a directory other users can reach."""
    environment = os.environ if environment is None else environment
    if os.geteuid() == 0:
        return Path("/var/lib/siteatlas")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "siteatlas"
    return Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "siteatlas"


def _env(name: str) -> JsonDict:
    return {"env": name}


def _require_plain_characters(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    raise PydanticCustomError(
        "plain_characters",
        "Only ASCII letters, digits, spaces and punctuation are allowed",
    )


_SERVER = re.compile(r"(?P<host>[0-9.]+|\[[^\]]+\])(?::(?P<port>[0-9]{1,5}))?")
_MAX_PORT = 65535


def _require_name_servers(text: str) -> str:
    for server in filter(None, map(str.strip, text.split(","))):
        match = _SERVER.fullmatch(server)
        host, port = (match["host"], int(match["port"] or 53)) if match else (server, 53)
        try:
            ip_address(host.strip("[]"))
            if not 0 < port <= _MAX_PORT:
                raise ValueError
        except ValueError as error:
            raise PydanticCustomError(
                "name_servers",
                "{server} is not an IP address; write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::1]",
                {"server": repr(server)},
            ) from error
    return text


RetentionDays = Annotated[float, Field(gt=0, le=36_500)]
IntervalHours = Annotated[
    float,
    Field(ge=MIN_INTERVAL_HOURS, le=MAX_INTERVAL_HOURS, allow_inf_nan=False),
]


class Settings(BaseModel):
    """Every setting, its default and its limits. Each names its environment variable."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    database_url: SecretStr | None = Field(
        None,
        json_schema_extra=_env("DATABASE_URL"),
        description="PostgreSQL database to use. If unset, an embedded server is started.",
    )
    scheduler_interval_minutes: Annotated[float, Field(gt=0, le=1440)] = Field(
        5,
        json_schema_extra=_env("SITEMAP_SCHEDULER_INTERVAL_MINUTES"),
        description="Minutes between scheduler ticks. Due sites are queued on time regardless.",
    )
    scheduler_batch_size: Annotated[int, Field(ge=1, le=1000)] = Field(
        20,
        json_schema_extra=_env("SITEMAP_SCHEDULER_BATCH_SIZE"),
        description=(
            "Number of due sites queued per transaction, and the maximum number of jobs that a "
            "tick or `scheduler run-once` claims. If set explicitly, it also limits each poll; "
            "otherwise a poll claims one job per free slot (`SITEATLAS_CONCURRENCY`)."
        ),
    )
    scheduler_max_instances: Annotated[int, Field(ge=1, le=10)] = Field(
        1,
        json_schema_extra=_env("SITEMAP_SCHEDULER_MAX_INSTANCES"),
        description="Maximum number of ticks that run concurrently in a process.",
    )
    host: str = Field(
        "127.0.0.1", json_schema_extra=_env("SITEATLAS_HOST"), description="Address to listen on."
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        8000, json_schema_extra=_env("SITEATLAS_PORT"), description="Port to listen on."
    )
    metrics_host: str = Field(
        "127.0.0.1",
        json_schema_extra=_env("SITEATLAS_METRICS_HOST"),
        description=(
            "Address on which a worker serves metrics and health; 0.0.0.0 means all interfaces."
        ),
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None,
        json_schema_extra=_env("SITEATLAS_METRICS_PORT"),
        description=(
            "Port on which a worker serves metrics and health; 0 picks a free port. Several "
            "processes use consecutive ports. If unset, metrics and health are not served."
        ),
    )
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = Field(
        500,
        json_schema_extra=_env("SITEATLAS_MAX_CONNECTIONS"),
        description=(
            "Maximum number of client connections to `serve`, capped at half the limit on open "
            "files. When it is reached, a new connection replaces the one that has been idle "
            "longest; if all have a request in progress, only `/health` is answered."
        ),
    )
    data_dir: Path = Field(
        default_factory=default_data_dir,
        json_schema_extra=_env("SITEATLAS_DATA_DIR"),
        description="Data directory of the embedded PostgreSQL.",
    )
    server_user: str | None = Field(
        None,
        json_schema_extra=_env("SITEATLAS_SERVER_USER"),
        description=(
            "User that runs the embedded PostgreSQL when it is started by root. Default: the owner "
            "of the data directory, else `siteatlas` if that user exists, else `nobody`."
        ),
    )
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        32,
        json_schema_extra=_env("SITEATLAS_CONCURRENCY"),
        description=(
            "Number of jobs that a process runs concurrently; an eighth of the slots is "
            "reserved for interactive jobs. Jobs that are only waiting for a site do not count."
        ),
    )
    pool_size: Annotated[int, Field(ge=1, le=100)] = Field(
        5,
        json_schema_extra=_env("SITEATLAS_POOL_SIZE"),
        description="Number of database connections that a process keeps open.",
    )
    pool_overflow: Annotated[int, Field(ge=0, le=100)] = Field(
        5,
        json_schema_extra=_env("SITEATLAS_POOL_OVERFLOW"),
        description="Number of additional database connections opened under load.",
    )
    database_wait_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        60,
        json_schema_extra=_env("SITEATLAS_DATABASE_WAIT_SECONDS"),
        description=(
            "Seconds that `serve` and `worker` wait at startup for a database that does not "
            "respond, and that every command waits for the embedded server."
        ),
    )
    lease_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        60,
        json_schema_extra=_env("SITEATLAS_LEASE_SECONDS"),
        description=(
            "Seconds that a job stays claimed without a heartbeat from its worker. With less than "
            "10, a busy machine may lose jobs that it is still running."
        ),
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        DEFAULT_MAX_ATTEMPTS,
        json_schema_extra=_env("SITEATLAS_MAX_ATTEMPTS"),
        description="Maximum number of attempts before a job fails permanently.",
    )
    egress_allow: str = Field(
        "",
        json_schema_extra=_env("SITEATLAS_EGRESS_ALLOW"),
        description=(
            "Private targets that may be contacted: a comma-separated list of HOST:PORT or "
            "CIDR:PORT."
        ),
    )
    proxy: SecretStr | None = Field(
        None,
        json_schema_extra=_env("SITEATLAS_PROXY"),
        description="HTTP proxy for all requests to sites: http://[USER:PASSWORD@]HOST:PORT.",
    )
    dns_servers: Annotated[str, AfterValidator(_require_name_servers)] = Field(
        "",
        json_schema_extra=_env("SITEATLAS_DNS_SERVERS"),
        description=(
            "Name servers to use instead of the system's: a comma-separated list of IP addresses, "
            "each with a port unless it is 53."
        ),
    )
    host_delay: Annotated[float, Field(ge=0, le=3600)] = Field(
        0.5,
        json_schema_extra=_env("SITEATLAS_HOST_DELAY"),
        description=(
            "Minimum number of seconds between the starts of two requests to a host. Hosts that "
            "share an IP address may together start four requests in this time."
        ),
    )
    host_connections: Annotated[int, Field(ge=1, le=64)] = Field(
        2,
        json_schema_extra=_env("SITEATLAS_HOST_CONNECTIONS"),
        description=(
            "Maximum number of concurrent requests to a host. Hosts that share an IP address may "
            "together have eight times as many."
        ),
    )
    max_urls_per_scan: Annotated[int, Field(ge=1, le=50_000_000)] = Field(
        10_000_000,
        json_schema_extra=_env("SITEATLAS_MAX_URLS_PER_SCAN"),
        description="Maximum number of URLs stored by a scan that was submitted without a limit.",
    )
    scan_interval_hours: IntervalHours = Field(
        24,
        json_schema_extra=_env("SITEATLAS_SCAN_INTERVAL_HOURS"),
        description="Hours between scans of a watched site; 0.016 is about one minute.",
    )
    keep_completed_jobs_days: RetentionDays = Field(
        30,
        json_schema_extra=_env("SITEATLAS_KEEP_COMPLETED_JOBS_DAYS"),
        description="Number of days to keep completed jobs.",
    )
    keep_failed_jobs_days: RetentionDays = Field(
        90,
        json_schema_extra=_env("SITEATLAS_KEEP_FAILED_JOBS_DAYS"),
        description="Number of days to keep failed and cancelled jobs.",
    )
    keep_batches_days: RetentionDays = Field(
        90,
        json_schema_extra=_env("SITEATLAS_KEEP_BATCHES_DAYS"),
        description="Number of days to keep a batch after its last job has ended.",
    )
    keep_scans: Annotated[int, Field(ge=1, le=100_000)] = Field(
        10,
        json_schema_extra=_env("SITEATLAS_KEEP_SCANS"),
        description="Number of most recent scans to keep per site when their jobs are pruned.",
    )
    robots_unreachable: Literal["retry", "proceed"] = Field(
        "retry",
        json_schema_extra=_env("SITEATLAS_ROBOTS_UNREACHABLE"),
        description="What to do if robots.txt cannot be read: retry later, or proceed without it.",
    )
    user_agent: Annotated[
        str, Field(min_length=1, max_length=400), AfterValidator(_require_plain_characters)
    ] = Field(
        "Siteatlas/0.1 (sitemap reader; robots.txt name: Siteatlas)",
        json_schema_extra=_env("SITEATLAS_USER_AGENT"),
        description="User-Agent header sent to sites; add a contact address.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", json_schema_extra=_env("SITEATLAS_LOG_LEVEL"), description="Minimum log level."
    )
    log_format: Literal["console", "json"] = Field(
        "console",
        json_schema_extra=_env("SITEATLAS_LOG_FORMAT"),
        description="Log format: for people (console) or for programs (json).",
    )

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The configured name servers; empty to use the system's."""
        return tuple(filter(None, map(str.strip, self.dns_servers.split(","))))

    @property
    def claim_limit(self) -> int | None:
        """The maximum number of jobs per claim; None (one per free slot) unless set explicitly."""
        chosen = "scheduler_batch_size" in self.model_fields_set
        return self.scheduler_batch_size if chosen else None


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and the source of each value."""

    settings: Settings
    origins: Mapping[str, str]


def environment_name(field: str) -> str:
    """The environment variable of a setting."""
    extra = Settings.model_fields[field].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["env"])


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings:
    """Read flags, environment and file; raise ConfigurationError naming the invalid value."""
    environment = os.environ if environment is None else environment
    file_path = file or Path(SETTINGS_FILE)
    from_file = _read_file(file_path, must_exist=file is not None)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field in Settings.model_fields:
        variable = environment_name(field)
        if field in given:
            values[field], origins[field] = given[field], "flag"
        elif environment.get(variable, "").strip():
            values[field], origins[field] = environment[variable], f"environment {variable}"
        elif field in from_file:
            values[field], origins[field] = from_file[field], f"file {file_path}"
        else:
            origins[field] = "default"
    return LoadedSettings(_validated(values, origins), origins)


def wanted_log_format() -> str:
    """The log format, even if other settings are invalid; `console` by default."""
    chosen = os.environ.get(environment_name("log_format"), "").strip()
    if not chosen:
        with suppress(ConfigurationError):
            chosen = str(_read_file(Path(SETTINGS_FILE), must_exist=False).get("log_format"))
    return chosen if chosen == "json" else "console"


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    if not path.is_file():
        if must_exist:
            raise ConfigurationError(f"There is no settings file at {path}.")
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from error
    unknown = sorted(set(content) - set(Settings.model_fields))
    if unknown:
        raise ConfigurationError(f"{path} has unknown settings: {', '.join(unknown)}.")
    return content


def _validated(values: dict[str, Any], origins: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        origin = origins.get(field, "default")
        raise unusable_setting(field, origin, f"{first['msg']}.") from error


def unusable_setting(field: str, origin: str, reason: str) -> ConfigurationError:
    """The error for an invalid value, with its name and source."""
    return ConfigurationError(f"{environment_name(field)} (from {origin}) is invalid: {reason}")
