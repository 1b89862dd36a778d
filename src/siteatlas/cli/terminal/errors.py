"""Turns the errors of commands into messages, advice and exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError

from siteatlas.cli.terminal.context import current
from siteatlas.cli.terminal.output import print_message, print_warning
from siteatlas.errors import (
    BindRefused,
    ConfigurationError,
    ConnectionFailed,
    DatabaseUnavailable,
    DomainNotFound,
    EgressDenied,
    EmbeddedServerUnavailable,
    InputError,
    JobActive,
    JobNotFound,
    KeyNotFound,
    NoSitemap,
    OutputClosed,
    PortTaken,
    RateLimited,
    ScanNotFound,
    SiteatlasError,
)
from siteatlas.logs import NOTICES, configure_logging, get_logger, stderr_is_json
from siteatlas.settings import wanted_log_format

Result = TypeVar("Result")

OUR_FAULT = "This is a bug in Siteatlas. Run the command again with -vv for a traceback."

INTERRUPTED = 130

# What to do about an error, where its own message does not say it; the nearest class wins.
ADVICE: dict[type[SiteatlasError], str] = {
    BindRefused: "Or use --host 127.0.0.1, which needs no key.",
    ConfigurationError: "Correct the value and run the command again.",
    DatabaseUnavailable: "Check DATABASE_URL, or unset it to use the embedded server.",
    EmbeddedServerUnavailable: "Try again; its log is in postgres/log in the data directory.",
    DomainNotFound: "List the known sites: siteatlas domains list",
    EgressDenied: "If this is your own site, allow it with SITEATLAS_EGRESS_ALLOW=HOST[:PORT]",
    JobActive: "Find it: siteatlas jobs list --status processing",
    KeyNotFound: "List the keys: siteatlas keys list",
    JobNotFound: "List the newest jobs: siteatlas jobs list",
    ScanNotFound: "List them: siteatlas scans SITE",
    NoSitemap: "If you know where the sitemap is, pass its URL instead of the site.",
    ConnectionFailed: "Check that the address is right and the site is up, then try again.",
    RateLimited: "Try again later.",
}

log = get_logger(NOTICES)


def run(work: Coroutine[object, object, Result]) -> Result:
    """Run the asynchronous part of a command to its end."""
    return asyncio.run(work)


def run_until_signal(work: Coroutine[object, object, Result]) -> Result:
    """Like `run`, but a signal cancels the work, which then leaves nothing unfinished behind.

    If it waits for a pipe, where nothing can be cancelled, the alarm ends the process.
    """
    received: list[int] = []

    async def cancellable() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(number: int, _frame: object) -> None:
            received.append(number)
            signal.alarm(10)
            loop.call_soon_threadsafe(task.cancel)

        earlier = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
        try:
            return await work
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    try:
        return asyncio.run(cancellable())
    except (asyncio.CancelledError, Exception):
        # A statement that is cancelled may end with an error of the driver.
        if not received:
            raise
        print_message("Stopped by a signal.")
        sys.exit(SIGNAL_EXIT + received[0])


def exit_with(error: Exception) -> NoReturn:
    """End the command: at most two lines on stderr, and the exit code of the error.

    Nothing is printed if the reader of the output has had enough.
    """
    known = error_to_report(error)
    if isinstance(known, OutputClosed):
        sys.exit(known.exit_code)
    keep_to_json()
    trace(error)
    if known is not None:
        report(known)
        sys.exit(known.exit_code)
    summary = f"{type(error).__name__}: {error}"
    print_error_message(SiteatlasError.code, summary, OUR_FAULT, style="")
    sys.exit(SiteatlasError.exit_code)


def keep_to_json() -> None:
    """Log in JSON if so configured, even if the command failed before it set up logging."""
    if wanted_log_format() == "json" and not stderr_is_json():
        configure_logging("info", "json")


def trace(error: Exception) -> None:
    """Print the traceback of the error if `-vv` was given."""
    if not current().trace:
        return
    if stderr_is_json():
        log.error("command_traceback", exc_info=error)
    else:
        traceback.print_exception(error)


def error_to_report(error: BaseException) -> SiteatlasError | None:
    """The Siteatlas error that a failed command prints, taken out of a group with no other."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, SiteatlasError) else None


def report(error: SiteatlasError, *, about: str | None = None) -> None:
    """Print one line that says what went wrong, and with what, and one line of advice."""
    where = f"{about}: " if about else ""
    print_error_with_advice(error, f"{where}{error.message}", advice_for(error))


def print_error_with_advice(error: SiteatlasError, message: str, advice: str | None) -> None:
    """Print an error in words that fit the place where it happened, and the advice."""
    print_error_message(error.code, message, advice)


def print_error_message(code: str, message: str, advice: str | None, *, style: str = "red") -> None:
    """Print one line for the error and one for the advice; in JSON, one object for both."""
    message = " ".join(message.split())
    if stderr_is_json():
        log.error("command_error", error_code=code, error=message, advice=advice)
        return
    print_warning(f"siteatlas: {code}: {message}", style=style)
    if advice:
        print_warning(advice)


def advice_for(error: SiteatlasError) -> str | None:
    """What a person can do about `error`."""
    if isinstance(error, PortTaken):
        return f"Choose another port with {error.option}; 0 picks a free port."
    found = (ADVICE[kind] for kind in type(error).__mro__ if kind in ADVICE)
    return next(found, None)


def report_usage_error(error: Any) -> None:
    """Shorten a usage error of typer; if stderr is JSON, report it as an object and exit.

    Otherwise the caller raises it again, and typer prints it below the usage line.
    """
    if isinstance(error, typer.BadParameter):
        error.message = usage_message(error)
    keep_to_json()
    if stderr_is_json():
        message = error.format_message() or "Missing command."
        print_error_message(InputError.code, message, "List the commands: siteatlas help")
        raise typer.Exit(error.exit_code)


# By the type of pydantic's error; the names are those of its context, and the value.
USAGE_MESSAGES = {
    "int_parsing": "'{input}' is not a whole number.",
    "int_parsing_size": "'{input}' is too large.",
    "float_parsing": "'{input}' is not a number.",
    "finite_number": "'{input}' is not a finite number.",
    "uuid_parsing": "'{input}' is not a UUID.",
    "greater_than": "must be greater than {gt:g}.",
    "greater_than_equal": "must be at least {ge:g}.",
    "less_than": "must be less than {lt:g}.",
    "less_than_equal": "must be at most {le:g}.",
}


def usage_message(error: typer.BadParameter) -> str:
    """What is wrong with a value, without the words of the validation library."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        (first, *_) = cause.errors()
        if form := USAGE_MESSAGES.get(first["type"]):
            return form.format(input=first["input"], **first.get("ctx", {}))
    return error.message.removeprefix("Value error, ")


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT_SECONDS = 30
SIGNAL_EXIT = 128


def leave(number: int, _frame: object = None) -> None:
    """Exit immediately, with the exit code of a process that this signal ended."""
    os._exit(SIGNAL_EXIT + number)


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process immediately and silently; after the block it is ignored.

    What follows the block is the end of the interpreter, which a signal would make noisy.
    """
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def stop_on_signals(
    stop: Callable[[], None],
    clean_up: Callable[[], None] = lambda: None,
    announce: Callable[[str], None] = print_message,
    drain: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Call `stop` on the first signal; exit immediately on the second, or if stopping hangs.

    `drain` is called on SIGUSR1: the process then ends by itself when its jobs have ended.
    `clean_up` runs before an immediate exit, at any point: it must not wait for a lock.
    `announce` receives the message for the user.
    """
    loop = asyncio.get_running_loop()
    earlier = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def leave_clean(number: int, _frame: object = None) -> None:
        """Clean up and exit immediately, on a second signal or when stopping takes too long."""
        with suppress(OSError):
            clean_up()
        leave(number)

    def receive(number: int) -> None:
        """Handle the first signal: request a clean shutdown and prepare for a second one."""
        # Not through the loop, which may be busy.
        for any_number in STOP_SIGNALS:
            signal.signal(any_number, leave_clean)
        loop.call_later(LAST_RESORT_SECONDS, leave_clean, number)
        stop()
        tell("Shutting down; press Ctrl-C again to quit immediately.")

    def finish(drain: Callable[[], None]) -> None:
        """Handle SIGUSR1; the signals that stop the process still do."""
        drain()
        tell("Finishing the running jobs; no new ones are taken.")

    def tell(words: str) -> None:
        """Announce; the reader of stderr may be gone, which must not prevent the shutdown."""
        with suppress(OSError, ValueError):
            announce(words)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, receive, number)
    if drain is not None:
        loop.add_signal_handler(signal.SIGUSR1, finish, drain)
    try:
        yield
    finally:
        if drain is not None:
            loop.remove_signal_handler(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, earlier[number] or signal.SIG_DFL)
