"""What people write into DATABASE_URL, turned into what the driver understands."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from siteatlas.errors import ConfigurationError

DRIVER = "postgresql+asyncpg"
SCHEMES = {"postgres", "postgresql", DRIVER}
SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
PASSED_ON = {"host", "port", "ssl"}


def parse_database_url(text: str) -> URL:
    """Accept `postgres://` and `postgresql://`, with `sslmode`; drop options of other drivers."""
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ConfigurationError("DATABASE_URL is not a database address.") from error
    if url.drivername not in SCHEMES:
        raise ConfigurationError("DATABASE_URL must begin with postgresql://.")
    if not url.database:
        raise ConfigurationError("DATABASE_URL does not name a database.")
    query = {key: value for key, value in url.query.items() if key in PASSED_ON}
    mode = url.query.get("sslmode")
    if mode is not None:
        if mode not in SSL_MODES:
            raise ConfigurationError(f"DATABASE_URL has an unknown sslmode: {mode}.")
        query["ssl"] = str(mode)
    return url.set(drivername=DRIVER, query=query)
