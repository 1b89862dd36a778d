"""What a command needs before it can work: settings and logging."""

from __future__ import annotations

from siteatlas.cli.invocation import TRACE_VERBOSITY, current, show_traces
from siteatlas.logs import configure_logging
from siteatlas.settings import LoadedSettings, Settings, load_settings


def prepare(*, logs_by_default: bool = False, **flags: object) -> Settings:
    """Read the settings and start logging; `flags` are settings given on the command line.

    Only services log what they do; other commands keep to warnings unless asked for more.
    """
    loaded = load_settings(flags)
    level = _log_level(loaded, logs_by_default=logs_by_default)
    configure_logging(level, loaded.settings.log_format)
    if level == "debug":
        show_traces()
    return loaded.settings


def _log_level(loaded: LoadedSettings, *, logs_by_default: bool) -> str:
    chosen = loaded.settings.log_level
    if current().verbosity >= TRACE_VERBOSITY:
        return "debug"
    if current().verbosity:
        return "debug" if chosen == "debug" else "info"
    if logs_by_default or loaded.origins["log_level"] != "default":
        return chosen
    return "warning"
