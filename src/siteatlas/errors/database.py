"""Errors of PostgreSQL, whether embedded or elsewhere."""

from __future__ import annotations

from siteatlas.errors.base import SiteatlasError


class DatabaseError(SiteatlasError):
    """The database cannot be used."""

    code = "database_error"
    http_status = 503
    exit_code = 4
    transient = True


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached."""

    code = "database_unavailable"


class DatabasePoolExhausted(DatabaseUnavailable):
    """All database connections of this process are in use. Try again."""

    code = "database_pool_exhausted"


class DatabaseConnectionsExhausted(DatabaseUnavailable):
    """The database server does not accept any more connections."""

    code = "database_connections_exhausted"


class DatabaseFull(DatabaseUnavailable):
    """The disk of the database server is full."""

    code = "database_full"


class DatabaseReadOnly(DatabaseUnavailable):
    """The database is currently read-only."""

    code = "database_read_only"


class DatabaseRefused(DatabaseUnavailable):
    """Database access was denied: check the user, password and database name in DATABASE_URL."""

    code = "database_refused"


class DatabaseTlsFailed(DatabaseUnavailable):
    """The TLS connection to the database failed: check the TLS options in DATABASE_URL."""

    code = "database_tls_failed"


class DatabaseRightsMissing(DatabaseUnavailable):
    """The user in DATABASE_URL lacks privileges: make it the owner of the database or schema."""

    code = "database_rights_missing"


class DatabaseBusy(DatabaseError):
    """The database was busy (deadlock or lock timeout). Try again."""

    code = "database_busy"


class DatabaseTimeout(DatabaseError):
    """The database took too long to respond."""

    code = "database_timeout"


class SchemaOutdated(DatabaseError):
    """The database schema is older than this version requires. Run: siteatlas db upgrade"""

    code = "schema_outdated"


class SchemaNewer(DatabaseError):
    """The database schema belongs to a newer version of Siteatlas. Use that version."""

    code = "schema_newer"


class DatabaseNotEmpty(DatabaseError):
    """The database contains data. Add --replace to delete it and restore the backup instead."""

    code = "database_not_empty"
    transient = False


class DatabaseInUse(DatabaseError):
    """Workers are using this database. Stop all processes of Siteatlas, then try again."""

    code = "database_in_use"


class EmbeddedServerUnavailable(DatabaseUnavailable):
    """The embedded PostgreSQL does not respond."""

    code = "embedded_server_unavailable"


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL cannot be started. Set DATABASE_URL to use another server."""

    code = "embedded_server_failed"


class EmbeddedBinaryMissing(EmbeddedServerError):
    """There is no embedded PostgreSQL for this platform. Set DATABASE_URL to use another server."""

    code = "embedded_binary_missing"


class EmbeddedVersionMismatch(EmbeddedServerError):
    """The data directory was created by a different major version of PostgreSQL."""

    code = "embedded_version_mismatch"


class EmbeddedDirectoryUnusable(EmbeddedServerError):
    """The data directory cannot be used."""

    code = "embedded_directory_unusable"


class EmbeddedUserUnknown(EmbeddedServerError):
    """The user id of this process has no user name, which PostgreSQL requires."""

    code = "embedded_user_unknown"
