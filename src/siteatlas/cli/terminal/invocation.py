"""The options that stand before the command, kept for the whole run of it.

The root command stores them here once; output, logging and the error border read them.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum

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
    """The invocation under way."""
    return _current.get(UNSET)


def say_more() -> None:
    """From now on, this invocation is at least verbose."""
    _current.set(replace(current(), verbosity=max(current().verbosity, 1)))


def say_less() -> None:
    """From now on, this invocation says nothing but errors."""
    _current.set(replace(current(), quiet=True))


def show_traces() -> None:
    """From now on, an error of this invocation shows where it happened."""
    _current.set(replace(current(), trace=True))
