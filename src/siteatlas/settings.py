"""The settings of one process: a frozen object that declares every value, its default and limits.

`settings_loading.py` reads the values. No other module reads the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from siteatlas.access_settings import AccessSettings
from siteatlas.setting_types import (
    MAX_PORT,
    Choice,
    Declaration,
    FilePath,
    Integer,
    Number,
    Secret,
    SecretText,
    Text,
    name_server_list,
    plain_characters,
    setting,
)

SETTINGS_FILE = "siteatlas.toml"
MIN_INTERVAL_HOURS = 0.016
MAX_INTERVAL_HOURS = 8760
# URLs that one scan stores, at most.
MAX_PAGES = 50_000_000
DEFAULT_MAX_ATTEMPTS = 5
SYSTEM_DATA_DIR = Path("/var/lib/siteatlas")


def default_data_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where the embedded server keeps its files; for root, a directory other users can reach."""
    environment = os.environ if environment is None else environment
    if os.geteuid() == 0:
        return SYSTEM_DATA_DIR
    if environment.get("XDG_DATA_HOME") and sys.platform != "darwin":
        return Path(environment["XDG_DATA_HOME"]) / "siteatlas"
    try:
        home = Path.home()
    except RuntimeError:  # a user id of a container, without an entry in the user database
        return SYSTEM_DATA_DIR
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "siteatlas"
    return home / ".local" / "share" / "siteatlas"


RETENTION_DAYS = Number(above=0, greatest=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(AccessSettings):
    """Every setting, its default and its limits. Each names its environment variable.

    `load_settings` checks values; code that creates the object must pass valid ones.
    """

    database_url: Secret | None = setting(
        SecretText(),
        None,
        env="DATABASE_URL",
        description="PostgreSQL database to use. If unset, an embedded server is started.",
    )
    scheduler_interval_minutes: float = setting(
        Number(above=0, greatest=1440),
        5,
        env="SITEMAP_SCHEDULER_INTERVAL_MINUTES",
        description="Minutes between scheduler ticks. Due sites are queued on time regardless.",
    )
    scheduler_batch_size: int = setting(
        Integer(1, 1000),
        20,
        env="SITEMAP_SCHEDULER_BATCH_SIZE",
        description=(
            "Number of due sites queued per transaction, and the maximum number of jobs that a "
            "tick or `scheduler run-once` claims. If set explicitly, it also limits each poll; "
            "otherwise a poll claims one job per free slot (`SITEATLAS_CONCURRENCY`)."
        ),
    )
    scheduler_max_instances: int = setting(
        Integer(1, 10),
        1,
        env="SITEMAP_SCHEDULER_MAX_INSTANCES",
        description="Maximum number of ticks that run concurrently in a process.",
    )
    host: str = setting(
        Text(), "127.0.0.1", env="SITEATLAS_HOST", description="Address to listen on."
    )
    port: int = setting(
        Integer(0, MAX_PORT), 8000, env="SITEATLAS_PORT", description="Port to listen on."
    )
    metrics_host: str = setting(
        Text(),
        "127.0.0.1",
        env="SITEATLAS_METRICS_HOST",
        description=(
            "Address on which a worker serves metrics and health; 0.0.0.0 means all interfaces."
        ),
    )
    metrics_port: int | None = setting(
        Integer(0, MAX_PORT),
        None,
        env="SITEATLAS_METRICS_PORT",
        description=(
            "Port on which a worker serves metrics and health; 0 picks a free port. Several "
            "processes use consecutive ports. If unset, metrics and health are not served."
        ),
    )
    max_connections: int = setting(
        Integer(1, 100_000),
        500,
        env="SITEATLAS_MAX_CONNECTIONS",
        description=(
            "Maximum number of client connections to `serve`, capped at half the limit on open "
            "files. When it is reached, a new connection replaces the one that has been idle "
            "longest; if all have a request in progress, only `/health` is answered."
        ),
    )
    data_dir: Path = setting(
        FilePath(),
        factory=default_data_dir,
        env="SITEATLAS_DATA_DIR",
        description="Data directory of the embedded PostgreSQL.",
    )
    server_user: str | None = setting(
        Text(),
        None,
        env="SITEATLAS_SERVER_USER",
        description=(
            "User that runs the embedded PostgreSQL when it is started by root. Default: the owner "
            "of the data directory, else `siteatlas` if that user exists, else `nobody`."
        ),
    )
    concurrency: int = setting(
        Integer(1, 1000),
        32,
        env="SITEATLAS_CONCURRENCY",
        description=(
            "Number of jobs that a process runs concurrently; an eighth of the slots is "
            "reserved for interactive jobs. Jobs that are only waiting for a site do not count."
        ),
    )
    pool_size: int = setting(
        Integer(1, 100),
        10,
        env="SITEATLAS_POOL_SIZE",
        description=(
            "Number of database connections that a process opens as it needs them and keeps open."
        ),
    )
    pool_overflow: int = setting(
        Integer(0, 100),
        0,
        env="SITEATLAS_POOL_OVERFLOW",
        description=(
            "Number of additional database connections opened under load. They are closed after "
            "use, so that requests under load often wait for a new one."
        ),
    )
    database_wait_seconds: float = setting(
        Number(0, 3600),
        60,
        env="SITEATLAS_DATABASE_WAIT_SECONDS",
        description=(
            "Seconds that `serve` and `worker` wait at startup for a database that does not "
            "respond, and that every command waits for the embedded server."
        ),
    )
    lease_seconds: float = setting(
        Number(1, 3600),
        60,
        env="SITEATLAS_LEASE_SECONDS",
        description=(
            "Seconds that a job stays claimed without a heartbeat from its worker. With less than "
            "10, a busy machine may lose jobs that it is still running."
        ),
    )
    max_attempts: int = setting(
        Integer(1, 100),
        DEFAULT_MAX_ATTEMPTS,
        env="SITEATLAS_MAX_ATTEMPTS",
        description="Maximum number of attempts before a job fails permanently.",
    )
    egress_allow: str = setting(
        Text(),
        "",
        env="SITEATLAS_EGRESS_ALLOW",
        description=(
            "Private targets that may be contacted: a comma-separated list of HOST:PORT or "
            "CIDR:PORT."
        ),
    )
    proxy: Secret | None = setting(
        SecretText(),
        None,
        env="SITEATLAS_PROXY",
        description="HTTP proxy for all requests to sites: http://[USER:PASSWORD@]HOST:PORT.",
    )
    dns_servers: str = setting(
        Text(check=name_server_list),
        "",
        env="SITEATLAS_DNS_SERVERS",
        description=(
            "Name servers to use instead of the system's: a comma-separated list of IP addresses, "
            "each with a port unless it is 53."
        ),
    )
    host_delay: float = setting(
        Number(0, 3600),
        0.5,
        env="SITEATLAS_HOST_DELAY",
        description=(
            "Minimum number of seconds between the starts of two requests to a host. Hosts that "
            "share an IP address may together start four requests in this time."
        ),
    )
    host_connections: int = setting(
        Integer(1, 64),
        2,
        env="SITEATLAS_HOST_CONNECTIONS",
        description=(
            "Maximum number of concurrent requests to a host. Hosts that share an IP address may "
            "together have eight times as many."
        ),
    )
    max_urls_per_scan: int = setting(
        Integer(1, MAX_PAGES),
        10_000_000,
        env="SITEATLAS_MAX_URLS_PER_SCAN",
        description="Maximum number of URLs stored by a scan that was submitted without a limit.",
    )
    scan_interval_hours: float = setting(
        Number(MIN_INTERVAL_HOURS, MAX_INTERVAL_HOURS),
        24,
        env="SITEATLAS_SCAN_INTERVAL_HOURS",
        description="Hours between scans of a watched site; 0.016 is about one minute.",
    )
    removal_confirm_minutes: float = setting(
        Number(0, 10_080),
        60,
        env="SITEATLAS_REMOVAL_CONFIRM_MINUTES",
        description=(
            "Minutes after which a second read that misses a URL proves that it was removed, where "
            "one complete scan is not enough."
        ),
    )
    removal_hold_days: float = setting(
        Number(0, 365),
        7,
        env="SITEATLAS_REMOVAL_HOLD_DAYS",
        description=(
            "Days after which URLs that are missing count as removed even if that is not proved."
        ),
    )
    keep_completed_jobs_days: float = setting(
        RETENTION_DAYS,
        30,
        env="SITEATLAS_KEEP_COMPLETED_JOBS_DAYS",
        description="Number of days to keep completed jobs.",
    )
    keep_failed_jobs_days: float = setting(
        RETENTION_DAYS,
        90,
        env="SITEATLAS_KEEP_FAILED_JOBS_DAYS",
        description="Number of days to keep failed and cancelled jobs.",
    )
    keep_batches_days: float = setting(
        RETENTION_DAYS,
        90,
        env="SITEATLAS_KEEP_BATCHES_DAYS",
        description="Number of days to keep a batch after its last job has ended.",
    )
    keep_scans: int = setting(
        Integer(1, 100_000),
        10,
        env="SITEATLAS_KEEP_SCANS",
        description=(
            "Number of most recent scans to keep per site when their jobs are pruned. Scans with "
            "events in the change feed are kept as long as these."
        ),
    )
    keep_changes_days: float = setting(
        RETENTION_DAYS,
        90,
        env="SITEATLAS_KEEP_CHANGES_DAYS",
        description=(
            "Number of days to keep the events of the change feed, and the earlier texts of "
            "robots.txt that they are about."
        ),
    )
    keep_removed_urls_days: float = setting(
        RETENTION_DAYS,
        365,
        env="SITEATLAS_KEEP_REMOVED_URLS_DAYS",
        description="Number of days to keep URLs that their sitemaps no longer list; at least as "
        "long as changes are kept.",
    )
    keep_deliveries_days: float = setting(
        RETENTION_DAYS,
        30,
        env="SITEATLAS_KEEP_DELIVERIES_DAYS",
        description=(
            "Number of days to keep the log of webhook deliveries; of each webhook, at most the "
            "last 10,000 attempts."
        ),
    )
    robots_unreachable: Literal["retry", "proceed"] = setting(
        Choice("retry", "proceed"),
        "retry",
        env="SITEATLAS_ROBOTS_UNREACHABLE",
        description="What to do if robots.txt cannot be read: retry later, or proceed without it.",
    )
    user_agent: str = setting(
        Text(400, plain_characters),
        "Siteatlas/0.1 (sitemap reader; robots.txt name: Siteatlas)",
        env="SITEATLAS_USER_AGENT",
        description="User-Agent header sent to sites; add a contact address.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        Choice("debug", "info", "warning", "error"),
        "info",
        env="SITEATLAS_LOG_LEVEL",
        description="Minimum log level.",
    )
    log_format: Literal["console", "json"] = setting(
        Choice("console", "json"),
        "console",
        env="SITEATLAS_LOG_FORMAT",
        description="Log format: for people (console) or for programs (json).",
    )
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The names of the settings that are not defaults."""

    def items(self) -> list[tuple[str, object]]:
        """Name and value of every setting, in the order of their declaration."""
        return [(name, getattr(self, name)) for name in DECLARATIONS]

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The setting `dns_servers` as a tuple; empty to use the name servers of the system."""
        return tuple(filter(None, map(str.strip, self.dns_servers.split(","))))

    @property
    def claim_limit(self) -> int | None:
        """The setting `scheduler_batch_size` as limit of a claim; None unless set explicitly."""
        chosen = "scheduler_batch_size" in self.given
        return self.scheduler_batch_size if chosen else None


DECLARATIONS: Mapping[str, Declaration] = {
    declared.name: declared.metadata["declaration"]
    for declared in fields(Settings)
    if "declaration" in declared.metadata
}


def environment_name(field: str) -> str:
    """The environment variable of a setting."""
    return DECLARATIONS[field].env
