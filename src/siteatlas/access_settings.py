"""The settings of access: keys, proxies, origins and limits. `settings.py` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from siteatlas.setting_types import FilePath, Integer, Number, Text, setting


def web_origin(text: str) -> str:
    """The value of a text setting, if it is empty or the origin of a web site."""
    parts = urlsplit(text)
    plain = text.rstrip("/")
    if not text or (
        parts.scheme in {"http", "https"} and parts.hostname and plain == _origin(text)
    ):
        return plain
    raise ValueError("it must be an origin such as https://siteatlas.example.com, without a path")


def _origin(text: str) -> str:
    """Scheme, host and port of a URL as written."""
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}"


def web_origins(text: str) -> str:
    """The value of a text setting, if it lists origins of web sites; as browsers write them."""
    return ",".join(web_origin(part) for part in map(str.strip, text.lower().split(",")) if part)


def network_list(text: str) -> str:
    """The value of a text setting, if it lists IP addresses or networks."""
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            ip_network(part)
        except ValueError as error:
            raise ValueError(f"{part!r} is neither an IP address nor a network") from error
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """The settings that decide who may enter; part of `Settings`."""

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
            "comma-separated list of IP addresses or networks. Those of others are ignored."
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
    keep_audit_days: float = setting(
        Number(above=0, greatest=36_500),
        365,
        env="SITEATLAS_KEEP_AUDIT_DAYS",
        description="Number of days to keep the audit trail.",
    )
