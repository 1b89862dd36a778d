"""What a command needs before it can work: settings and logging."""

from __future__ import annotations

from siteatlas.cli.invocation import TRACE_VERBOSITY, current, show_traces
from siteatlas.errors import ConfigurationError
from siteatlas.logs import configure_logging
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.proxy import Proxy
from siteatlas.settings import LoadedSettings, Settings, load_settings, unusable_setting


def prepare(*, log_level: str = "warning", **flags: object) -> Settings:
    """Read the settings and start logging; `flags` are settings given on the command line.

    A wrong allow list is refused here, whatever the command. `log_level` holds unless the
    environment, the settings file or -v ask for another.
    """
    loaded = load_settings(flags)
    _check_allow_list(loaded)
    _check_proxy(loaded)
    level = _log_level(loaded, log_level)
    configure_logging(level, loaded.settings.log_format)
    if level == "debug":
        show_traces()
    return loaded.settings


def _check_allow_list(loaded: LoadedSettings) -> None:
    try:
        EgressPolicy.from_text(loaded.settings.egress_allow)
    except ConfigurationError as error:
        origin = loaded.origins["egress_allow"]
        raise unusable_setting("egress_allow", origin, error.message) from error


def _check_proxy(loaded: LoadedSettings) -> None:
    if loaded.settings.proxy is None:
        return
    try:
        Proxy.parse(loaded.settings.proxy.get_secret_value())
    except ConfigurationError as error:
        raise unusable_setting("proxy", loaded.origins["proxy"], error.message) from error


def _log_level(loaded: LoadedSettings, usual: str) -> str:
    chosen = loaded.settings.log_level
    if current().verbosity >= TRACE_VERBOSITY:
        return "debug"
    if current().verbosity:
        return "debug" if chosen == "debug" else "info"
    return usual if loaded.origins["log_level"] == "default" else chosen
