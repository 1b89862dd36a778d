"""Translates DATABASE_URL into the options of the driver."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from siteatlas.errors import ConfigurationError
from siteatlas.setting_types import MAX_PORT

DRIVER = "postgresql+asyncpg"
SCHEMES = {"postgres", "postgresql", DRIVER}
SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
PASSED_ON = {"host", "port", "ssl"}
# Options of TLS that the driver takes from an address only, not as arguments.
TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
TLS_OPTIONS = (*TLS_FILES, "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version")


def parse_database_url(text: str) -> URL:
    """Accept `postgres://` and `postgresql://`, with `sslmode`; drop options of other drivers.

    TLS files are left to `tls_address`.
    """
    url = _split_database_url(text)
    if url.drivername not in SCHEMES:
        raise ConfigurationError("DATABASE_URL must begin with postgresql://.")
    if not url.database:
        raise ConfigurationError("DATABASE_URL does not name a database.")
    _check_database_host(url.host or "")
    _check_database_ports(url)
    query = {key: value for key, value in url.query.items() if key in PASSED_ON}
    mode = url.query.get("sslmode")
    if mode is not None:
        if mode not in SSL_MODES:
            raise ConfigurationError(f"DATABASE_URL has an unknown sslmode: {mode}.")
        query["ssl"] = str(mode)
    return url.set(drivername=DRIVER, query=query)


def _split_database_url(text: str) -> URL:
    """The parts of DATABASE_URL; ConfigurationError if it is malformed."""
    try:
        return make_url(text)
    except ArgumentError as error:
        raise ConfigurationError("DATABASE_URL is not a valid database URL.") from error
    except ValueError as error:
        raise ConfigurationError("The port in DATABASE_URL is not a number.") from error


def _check_database_host(host: str) -> None:
    """Refuse a DATABASE_URL without a valid host name."""
    # What follows the first `@` of a password would be shown as a part of the host.
    if "@" in host:
        raise ConfigurationError(
            "DATABASE_URL contains more than one @: write an @ in the password as %40."
        )
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ConfigurationError("The host in DATABASE_URL is not a valid host name.") from error


def _check_database_ports(url: URL) -> None:
    """Refuse a DATABASE_URL with a port out of range; it may list several servers."""
    ports = [str(url.port)] if url.port is not None else []
    given = url.query.get("port", ())
    ports += given.split(",") if isinstance(given, str) else given
    for port in ports:
        if not (port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
            raise ConfigurationError(
                f"The port in DATABASE_URL must be a number from 1 to {MAX_PORT}, not {port}."
            )


def tls_address(text: str) -> str | None:
    """The TLS options of DATABASE_URL in the form that the driver accepts; None without any.

    The files are read once, because the driver's own errors would not say which of them is wrong.
    """
    query = _split_database_url(text).query
    given = {name: str(query[name]) for name in TLS_OPTIONS if name in query}
    if not given:
        return None
    if given.get("sslrootcert") == "system":
        raise ConfigurationError(
            "sslrootcert=system in DATABASE_URL is not supported. Name the file with the "
            "certificates, such as /etc/ssl/certs/ca-certificates.crt."
        )
    _check_tls_files(given)
    return f"postgresql:///?{urlencode(given)}"


def _check_tls_files(given: Mapping[str, str]) -> None:
    """Refuse certificate files in DATABASE_URL that are unreadable or not in PEM format."""
    for name in TLS_FILES:
        if name in given:
            _check_readable(name, given[name])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        for name in ("sslrootcert", "sslcrl"):
            if name in given:
                context.load_verify_locations(cafile=given[name])
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{name} in DATABASE_URL cannot be used: {given[name]} holds nothing of that kind in "
            "PEM format."
        ) from error
    if "sslcert" in given:
        _check_client_certificate(context, given)


def _check_readable(name: str, path: str) -> None:
    """Refuse a certificate file in DATABASE_URL that cannot be opened."""
    try:
        with open(path, "rb"):  # noqa: PTH123 a path as libpq has it, not one of ours
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{name} in DATABASE_URL cannot be read: {path}: {error.strerror}."
        ) from error


def _check_client_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """Refuse a client certificate in DATABASE_URL that does not match its key."""
    secret = given.get("sslpassword", "")
    try:
        context.load_cert_chain(given["sslcert"], given.get("sslkey"), lambda: secret)
    except ssl.SSLError as error:
        raise ConfigurationError(
            "sslcert and sslkey in DATABASE_URL cannot be used together: "
            f"{error.reason or 'the certificate or its key cannot be read'}."
        ) from error
