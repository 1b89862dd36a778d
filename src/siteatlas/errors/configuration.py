"""Errors of the operator's surroundings: settings, options, ports, the place of the output."""

from __future__ import annotations

from siteatlas.errors.base import SiteatlasError


class ConfigurationError(SiteatlasError):
    """A setting has an invalid value."""

    code = "configuration_invalid"
    exit_code = 2


class BindRefused(ConfigurationError):
    """Without an access key, the service listens on loopback addresses only."""

    code = "bind_refused"


class PortTaken(ConfigurationError):
    """The port is already in use by another program.

    `option` is the option of the command that chooses the port.
    """

    code = "port_taken"

    def __init__(self, message: str | None = None, *, option: str = "--port") -> None:
        super().__init__(message)
        self.option = option


class DemoRunning(ConfigurationError):
    """Another demo is already using this data directory."""

    code = "demo_running"


class OutputFailed(SiteatlasError):
    """The output cannot be written."""

    code = "output_failed"


class OutputClosed(OutputFailed):
    """The program reading the output closed the pipe."""

    code = "output_closed"
    exit_code = 0


class ParquetFailed(OutputFailed):
    """The process that encodes Parquet ended before the export did. Run the export again."""

    code = "parquet_failed"


class BackupInvalid(SiteatlasError):
    """The file is not a backup of Siteatlas, or it is incomplete or damaged."""

    code = "backup_invalid"
