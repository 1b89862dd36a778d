"""The settings of one process: a frozen object that declares every value, its default and limits.

`load_settings` reads them once, with the origin of each value. Precedence: flag, environment,
`siteatlas.toml`, default. No other module reads the environment.

The type of a setting converts text, or a value of a TOML file, and raises ValueError with what it
expects; `load_settings` names the setting that is invalid.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from siteatlas.errors import ConfigurationError

SETTINGS_FILE = "siteatlas.toml"
MAX_PORT = 65535
MIN_INTERVAL_HOURS = 0.016
MAX_INTERVAL_HOURS = 8760
# URLs that one scan stores, at most.
MAX_PAGES = 50_000_000
DEFAULT_MAX_ATTEMPTS = 5
# The trusted proxy that connects to the Unix socket of the service.
UNIX_PROXY = "unix"


class Secret:
    """Text that is not shown unless `get_secret_value` is called."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret('**********')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class NumberLimits:
    """The least and the greatest value; `above` is a limit that is not itself included."""

    def __init__(
        self,
        least: float | None = None,
        greatest: float | None = None,
        *,
        above: float | None = None,
    ) -> None:
        self.least = least
        self.greatest = greatest
        self.above = above

    def check(self, value: float) -> None:
        """Raise ValueError for a value outside the limits, and for one that is no number."""
        if self.greatest is not None and not value <= self.greatest:
            raise ValueError(f"it must be {self.greatest} or less")
        if self.above is not None and not value > self.above:
            raise ValueError(f"it must be more than {self.above}")
        if self.least is not None and not value >= self.least:
            raise ValueError(f"it must be {self.least} or more")


class Integer(NumberLimits):
    def convert(self, value: object) -> int:
        number = _integer(value)
        self.check(number)
        return number


class Number(NumberLimits):
    """A number, with or without a fraction."""

    def convert(self, value: object) -> float:
        number = _number(value)
        self.check(number)
        return number


class Text:
    """A line of text without spaces around it; `check` returns the text or raises ValueError."""

    def __init__(
        self,
        max_length: int | None = None,
        check: Callable[[str], str] = str,
    ) -> None:
        self.max_length = max_length
        self._check = check

    def convert(self, value: object) -> str:
        """Convert the value of a setting to text, stripped and checked."""
        text = _text(value).strip()
        if self.max_length is not None and not text:
            raise ValueError("it must not be empty")
        if self.max_length is not None and len(text) > self.max_length:
            raise ValueError(f"it is longer than {self.max_length} characters")
        return self._check(text)


class SecretText:
    """Text such as a password or a URL that may contain one."""

    def convert(self, value: object) -> Secret:
        """Convert the value of a setting to text that is not shown."""
        return Secret(_text(value).strip())


class FilePath:
    """A path in the file system, which need not exist."""

    def convert(self, value: object) -> Path:
        if isinstance(value, (str, Path)):
            return Path(str(value).strip())
        raise ValueError("it must be a path")


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: object) -> str:
        """Return the value of a setting if it is one of the words; ValueError otherwise."""
        if isinstance(value, str) and value in self.words:
            return value
        *most, last = map(repr, self.words)
        raise ValueError(f"it must be {', '.join(most)} or {last}")


SettingType = Integer | Number | Text | SecretText | FilePath | Choice
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")


def _integer(value: object) -> int:
    if isinstance(value, str):
        if WHOLE_NUMBER.fullmatch(value.strip()) is None:
            raise ValueError("it must be a whole number")
        try:
            return int(value.strip().partition(".")[0])
        except ValueError as error:
            raise ValueError("it has too many digits") from error
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("it must be a finite number")
        if not value.is_integer():
            raise ValueError("it must be a whole number")
    if isinstance(value, (int, float)):
        return int(value)
    raise ValueError("it must be a whole number")


def _number(value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        raise ValueError("it must be a number")  # noqa: TRY004 the caller names it
    try:
        # Digits of other scripts are more often a mistake than a number.
        return float(value.encode("ascii"))
    except ValueError as error:
        raise ValueError("it must be a number") from error


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("it must be text")


def plain_characters(text: str) -> str:
    """The value of a text setting, if an HTTP header can hold it; ValueError otherwise."""
    if text.isascii() and text.isprintable():
        return text
    raise ValueError("only ASCII letters, digits, spaces and punctuation are allowed")


NAME_SERVER = re.compile(r"(?P<host>[0-9.]+|\[[^\]]+\])(?::(?P<port>[0-9]{1,5}))?")


def name_server_list(text: str) -> str:
    """The value of a text setting, if it lists IP addresses, with or without ports."""
    for server in filter(None, map(str.strip, text.split(","))):
        match = NAME_SERVER.fullmatch(server)
        host, port = (match["host"], int(match["port"] or 53)) if match else (server, 53)
        try:
            ip_address(host.strip("[]"))
            if not 0 < port <= MAX_PORT:
                raise ValueError
        except ValueError as error:
            raise ValueError(
                f"{server!r} is not an IP address; "
                "write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::1]"
            ) from error
    return text


def web_origin(text: str) -> str:
    """The value of a text setting, if it is empty or the origin of a web site."""
    parts = urlsplit(text)
    origin = text.rstrip("/")
    is_web = parts.scheme in {"http", "https"} and parts.hostname
    if not text or (is_web and origin == f"{parts.scheme}://{parts.netloc}"):
        return origin
    raise ValueError("it must be an origin such as https://siteatlas.example.com, without a path")


def web_origins(text: str) -> str:
    """The value of a text setting, if it lists origins of web sites; as browsers write them."""
    return ",".join(web_origin(part) for part in map(str.strip, text.lower().split(",")) if part)


def network_list(text: str) -> str:
    """The value of a text setting, if it lists IP addresses or networks, or `unix`."""
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            if part != UNIX_PROXY:
                ip_network(part)
        except ValueError as error:
            raise ValueError(f"{part!r} is neither an IP address nor a network") from error
    return text


def address_rates(text: str) -> str:
    """The value of a text setting, if it lists IP addresses or networks, each with a rate."""
    _rates_by_range(text)
    return text


def _rates_by_range(text: str) -> tuple[tuple[IPv4Network | IPv6Network, float], ...]:
    rates = []
    for part in filter(None, map(str.strip, text.split(","))):
        network, _, rate = part.partition("=")
        try:
            rates.append((ip_network(network.strip()), float(rate)))
        except ValueError as error:
            raise ValueError(f"{part!r} is not CIDR=N, such as 198.51.100.0/24=20") from error
        if not 0 < rates[-1][1] <= 1000:
            raise ValueError(f"the rate in {part!r} is not between 0 and 1000")
    return tuple(rates)


def default_data_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where the embedded server keeps its files; for root, a directory other users can reach."""
    environment = os.environ if environment is None else environment
    system = Path("/var/lib/siteatlas")
    if os.geteuid() == 0:
        return system
    if environment.get("XDG_DATA_HOME") and sys.platform != "darwin":
        return Path(environment["XDG_DATA_HOME"]) / "siteatlas"
    try:
        home = Path.home()
    except RuntimeError:  # a user id of a container, without an entry in the user database
        return system
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "siteatlas"
    return home / ".local" / "share" / "siteatlas"


class Declaration:
    """What is known of a setting besides its default."""

    def __init__(self, type: SettingType, env: str, description: str) -> None:
        self.type = type
        self.env = env
        self.description = description


def setting(
    type: SettingType,
    default: object = MISSING,
    *,
    factory: Any = MISSING,
    env: str,
    description: str,
) -> Any:
    """A field of a dataclass of settings; the metadata hold its `declaration`."""
    declaration = {"declaration": Declaration(type, env, description)}
    return field(default=default, default_factory=factory, metadata=declaration)


RETENTION_DAYS = Number(above=0, greatest=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, its default and its limits. Each names its environment variable.

    `load_settings` checks values; code that creates the object must pass valid ones.
    """

    admin_key_file: Path | None = setting(
        FilePath(),
        None,
        env="SITEATLAS_ADMIN_KEY_FILE",
        description=(
            "File with an access key (`siteatlas keys generate`) that `serve` stores at startup "
            "with the scope `admin`."
        ),
    )
    public_url: str = setting(
        Text(check=web_origin),
        "",
        env="SITEATLAS_PUBLIC_URL",
        description=(
            "Address under which browsers reach the service, such as "
            "`https://siteatlas.example.com`. If set, other `Host` values are refused, except "
            "loopback addresses; with `https`, session cookies are sent over TLS only."
        ),
    )
    trusted_proxies: str = setting(
        Text(check=network_list),
        "",
        env="SITEATLAS_TRUSTED_PROXIES",
        description=(
            "Reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are used: a "
            "comma-separated list of IP addresses or networks; `unix` stands for programs that "
            "connect to `SITEATLAS_SOCKET`. Those of others are ignored."
        ),
    )
    cors_origins: str = setting(
        Text(check=web_origins),
        "",
        env="SITEATLAS_CORS_ORIGINS",
        description=(
            "Origins whose pages may use the API with an access key: a comma-separated list. "
            "Session cookies are never accepted from them."
        ),
    )
    submits_per_minute: int = setting(
        Integer(1, 100_000),
        60,
        env="SITEATLAS_SUBMITS_PER_MINUTE",
        description=(
            "Maximum number of requests per minute that change something, per access key, over "
            "all processes. Not in local mode."
        ),
    )
    reads_per_minute: int = setting(
        Integer(1, 1_000_000),
        600,
        env="SITEATLAS_READS_PER_MINUTE",
        description=(
            "Maximum number of other requests per minute, per access key and process. Not in "
            "local mode."
        ),
    )
    failed_logins_per_minute: int = setting(
        Integer(1, 1_000_000),
        10,
        env="SITEATLAS_FAILED_LOGINS_PER_MINUTE",
        description=(
            "Maximum number of wrong access keys per minute and address (IPv6: /64 network), over "
            "all processes; more of them are answered with 429."
        ),
    )
    max_queued_scans: int = setting(
        Integer(1, 10_000_000),
        10_000,
        env="SITEATLAS_MAX_QUEUED_SCANS",
        description="Maximum number of pending jobs per user. Not in local mode.",
    )
    exports_per_user: int = setting(
        Integer(1, 1_000),
        4,
        env="SITEATLAS_EXPORTS_PER_USER",
        description=(
            "Maximum number of exports and expensive reads of a user at the same time, per "
            "process; 16 of all users. Others wait for up to a minute."
        ),
    )
    keep_audit_days: float = setting(
        RETENTION_DAYS,
        365,
        env="SITEATLAS_KEEP_AUDIT_DAYS",
        description="Number of days to keep the audit trail.",
    )
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
    socket: Path | None = setting(
        FilePath(),
        None,
        env="SITEATLAS_SOCKET",
        description=(
            "Unix socket to listen on instead of `SITEATLAS_HOST` and `SITEATLAS_PORT`, for a "
            "proxy on the same machine. Its owner and group may connect."
        ),
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
            "Private targets that may be contacted: a comma-separated list of HOST[:PORT], "
            "*.DOMAIN[:PORT] or CIDR[:PORT]."
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
    address_rates: str = setting(
        Text(check=address_rates),
        "",
        env="SITEATLAS_ADDRESS_RATES",
        description=(
            "Requests per second that may be started at each IP address of a range, in all "
            "workers together: a comma-separated list of CIDR=N; the first match counts. For other "
            "addresses, SITEATLAS_HOST_DELAY applies."
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
            "Minutes after which a later scan that misses a URL again proves that it was removed, "
            "where one complete scan is not enough."
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
    notice: str = setting(
        Text(),
        "",
        env="SITEATLAS_NOTICE",
        description="A sentence that every page of the dashboard shows, such as whom to ask.",
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
    def rates_by_range(self) -> tuple[tuple[IPv4Network | IPv6Network, float], ...]:
        """The setting `address_rates`, read."""
        return _rates_by_range(self.address_rates)

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


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and the source of each value."""

    settings: Settings
    origins: Mapping[str, str]


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings:
    """Read flags, environment and file; raise ConfigurationError naming the invalid value."""
    environment = os.environ if environment is None else environment
    file_path = file or Path(SETTINGS_FILE)
    from_file = _read_settings_file(file_path, must_exist=file is not None)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in DECLARATIONS:
        variable = environment_name(name)
        if name in given:
            values[name], origins[name] = given[name], "flag"
        elif environment.get(variable, "").strip():
            values[name], origins[name] = environment[variable], f"environment {variable}"
        elif name in from_file:
            values[name], origins[name] = from_file[name], f"file {file_path}"
        else:
            origins[name] = "default"
    return LoadedSettings(_convert_settings(values, origins), origins)


def wanted_log_format() -> str:
    """The log format, even if other settings are invalid; `console` by default."""
    chosen = os.environ.get(environment_name("log_format"), "").strip()
    if not chosen:
        with suppress(ConfigurationError):
            chosen = str(
                _read_settings_file(Path(SETTINGS_FILE), must_exist=False).get("log_format")
            )
    return chosen if chosen == "json" else "console"


def _read_settings_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    if not path.is_file():
        if must_exist:
            raise ConfigurationError(f"There is no settings file at {path}.")
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from error
    # What the table says is up to `siteatlas lint`.
    content.pop("lint", None)
    unknown = sorted(set(content) - set(DECLARATIONS))
    if unknown:
        raise ConfigurationError(f"{path} has unknown settings: {', '.join(unknown)}.")
    return content


def _convert_settings(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    converted: dict[str, Any] = {}
    for name, value in values.items():
        try:
            converted[name] = DECLARATIONS[name].type.convert(value)
        except ValueError as error:
            raise unusable_setting(name, origins[name], f"{error}.") from error
    return Settings(**converted, given=frozenset(converted))


def unusable_setting(field: str, origin: str, reason: str) -> ConfigurationError:
    """The error for an invalid value, with its name and source."""
    return ConfigurationError(f"{environment_name(field)} (from {origin}) is invalid: {reason}")


def displayed_value(name: str, value: object) -> str | int | float | None:
    """The value of a setting as `siteatlas config show` and the dashboard show it."""
    if isinstance(value, Secret):
        shown = masked_url(value.get_secret_value())
        # Some proxies take a key in the place of the user name.
        return re.sub(r"://.*@", "://***@", shown) if name == "proxy" else shown
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value)


def masked_url(url: str) -> str:
    """A URL with its password masked; an invalid URL is hidden."""
    if "://" not in url:
        return "***"
    url = re.sub(r"(://[^:@/?]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][a-z_]*password=)[^&]*", r"\1***", url)
