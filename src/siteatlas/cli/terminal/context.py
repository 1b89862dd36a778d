"""How a command was called, and what it needs before it can work: settings and logging.

The root command stores its options here once; output, logging and error reporting read them.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siteatlas.settings import LoadedSettings, Settings

TRACE_VERBOSITY = 2


class ColorChoice(StrEnum):
    """When to use colour; `auto` asks NO_COLOR, then FORCE_COLOR, then the terminal."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Invocation:
    """How one command was called."""

    verbosity: int = 0
    quiet: bool = False
    color: ColorChoice = ColorChoice.AUTO
    trace: bool = False


UNSET = Invocation()
_current: ContextVar[Invocation] = ContextVar("invocation")


def begin(verbosity: int, *, quiet: bool, color: ColorChoice) -> None:
    """Remember the options of the root command."""
    _current.set(Invocation(verbosity, quiet, color, trace=verbosity >= TRACE_VERBOSITY))


def current() -> Invocation:
    """The invocation in progress."""
    return _current.get(UNSET)


def say_more() -> None:
    """Show more messages from now on, as `--verbose` does."""
    _current.set(replace(current(), verbosity=max(current().verbosity, 1)))


def say_less() -> None:
    """Show only errors from now on, as `--quiet` does."""
    _current.set(replace(current(), quiet=True))


def show_traces() -> None:
    """Print a traceback with each error from now on."""
    _current.set(replace(current(), trace=True))


def prepare(*, log_level: str = "warning", **flags: object) -> Settings:
    """Read the settings and start logging; `flags` are settings given on the command line.

    A wrong allow list or proxy is refused here, whatever the command. `log_level` holds unless the
    environment, the settings file or -v ask for another.
    """
    # Late, so that `siteatlas --help` is quick.
    from siteatlas.logs import configure_logging
    from siteatlas.net.gate import require_usable
    from siteatlas.settings import load_settings

    loaded = load_settings(flags)
    require_usable(loaded)
    level = _log_level(loaded, log_level)
    configure_logging(level, loaded.settings.log_format)
    if level == "debug":
        show_traces()
    return loaded.settings


def _log_level(loaded: LoadedSettings, usual: str) -> str:
    """The log level of a command: by `-v`, the settings, or the default of the command."""
    chosen = loaded.settings.log_level
    if current().verbosity >= TRACE_VERBOSITY:
        return "debug"
    if current().verbosity:
        return "debug" if chosen == "debug" else "info"
    return usual if loaded.origins["log_level"] == "default" else chosen
