"""What a command needs before it can work: settings and logging."""

from __future__ import annotations

from siteatlas.cli.terminal.invocation import TRACE_VERBOSITY, current, show_traces
from siteatlas.logs import configure_logging
from siteatlas.net.from_settings import require_usable
from siteatlas.settings import LoadedSettings, Settings, load_settings


def prepare(*, log_level: str = "warning", **flags: object) -> Settings:
    """Read the settings and start logging; `flags` are settings given on the command line.

    A wrong allow list or proxy is refused here, whatever the command. `log_level` holds unless the
    environment, the settings file or -v ask for another.
    """
    loaded = load_settings(flags)
    require_usable(loaded)
    level = _log_level(loaded, log_level)
    configure_logging(level, loaded.settings.log_format)
    if level == "debug":
        show_traces()
    return loaded.settings


def _log_level(loaded: LoadedSettings, usual: str) -> str:
    chosen = loaded.settings.log_level
    if current().verbosity >= TRACE_VERBOSITY:
        return "debug"
    if current().verbosity:
        return "debug" if chosen == "debug" else "info"
    return usual if loaded.origins["log_level"] == "default" else chosen
