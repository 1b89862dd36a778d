"""Structured logging: the loggers of the packages, and where their lines go.

What a line looks like is `log_lines.py`. Each package defines its own events.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from siteatlas.text import clean_text


def clean_values(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Apply `clean_text` to every value of a log event."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = clean_text(value)
        elif value is not None and not isinstance(value, (int, float, bool, tuple, type)):
            event[key] = value if key == "exc_info" else clean_text(str(value))
    return event


# Applied to our events and to the records of libraries.
SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    clean_values,
]


def configure_structlog() -> None:
    """Pass events to the handlers of the standard library."""
    structlog.configure(
        processors=[*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def structlog_logger(component: str) -> structlog.stdlib.BoundLogger:
    """A logger that follows the configuration of structlog at the time of each event."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, wrapper_class=structlog.stdlib.BoundLogger, logger_factory_args=(component,)
    )
    return logger


def line_formatter(*, as_json: bool, colors: bool) -> structlog.stdlib.ProcessorFormatter:
    """The formatter of a handler, for our events and for the records of libraries."""
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=colors,
                pad_event_to=28,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )


if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger, ProcessorFormatter

# The logger of command messages, which are shown at any level.
NOTICES = "cli"
# The database driver makes a future that nobody awaits when a connection attempt is cancelled.
DRIVER_NOISE = "unexpected connection_lost() call"


def job_context(**values: Any) -> AbstractContextManager[None]:
    """Add these values to every line that is logged inside the block."""
    # Late, so that a command that logs nothing starts without structlog.
    from structlog.contextvars import bound_contextvars

    return bound_contextvars(**values)


class LineFormatter(logging.Formatter):
    """Formats lines with structlog, which it imports for the first of them."""

    def __init__(self, *, as_json: bool, colors: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._colors = colors
        self._formatter: ProcessorFormatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record with structlog, as JSON or for the console."""
        if self._formatter is None:
            self._formatter = line_formatter(as_json=self._as_json, colors=self._colors)
        return self._formatter.format(record)


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes lines that are JSON objects."""


def stderr_is_json() -> bool:
    """Whether logging writes JSON lines to stderr; nothing else may be written there then."""
    handlers = logging.getLogger().handlers
    return any(isinstance(one, JsonHandler) and one.stream is sys.stderr for one in handlers)


class Structlog:
    """Whether structlog is in use yet.

    Importing it takes a tenth of the startup of a scan, so it is imported and configured with the
    first line that the level lets through. Where it is imported already, nothing is deferred.
    """

    def __init__(self) -> None:
        self._deferred = False

    def configure(self) -> None:
        """Configure structlog now if it is imported, otherwise with the first line."""
        self._deferred = True
        if "structlog" in sys.modules:
            self._load()

    def accepts(self, component: str, level: int) -> bool:
        """Whether an event can become a line; False if logging was never configured, because
        structlog would print on the stdout of a program that uses Siteatlas as a library.
        """
        if self._deferred and logging.getLogger(component).isEnabledFor(level):
            self._load()
        structlog = sys.modules.get("structlog")
        return structlog is not None and structlog.is_configured()

    def _load(self) -> None:
        """Import and configure structlog."""
        configure_structlog()
        self._deferred = False


_structlog = Structlog()


class ComponentLogger:
    """The logger of one package: an event name and its values, never formatted text."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._logger: BoundLogger | None = None

    def debug(self, event: str, **values: Any) -> None:
        """Log an event that helps to find a bug in Siteatlas."""
        if _structlog.accepts(self._component, logging.DEBUG):
            self._lines.debug(event, **values)

    def info(self, event: str, **values: Any) -> None:
        """Log an expected event."""
        if _structlog.accepts(self._component, logging.INFO):
            self._lines.info(event, **values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that an operator may have to look at."""
        if _structlog.accepts(self._component, logging.WARNING):
            self._lines.warning(event, **values)

    def error(self, event: str, **values: Any) -> None:
        """Log a failure."""
        if _structlog.accepts(self._component, logging.ERROR):
            self._lines.error(event, **values)

    def exception(self, event: str, **values: Any) -> None:
        """Log a failure with the traceback of the exception that is being handled."""
        if _structlog.accepts(self._component, logging.ERROR):
            self._lines.exception(event, **values)

    @property
    def _lines(self) -> BoundLogger:
        """The structlog logger of this component, created when it is first used."""
        if self._logger is None:
            self._logger = structlog_logger(self._component)
        return self._logger


class Throttle:
    """Limits the rate of log lines for an event that repeats.

    The first `burst` events have a line each, later ones one per `seconds`.
    """

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._credit = float(burst)
        self._seen = clock()
        self._left_out = 0

    def admit(self) -> int | None:
        """The number of lines suppressed since the last one; None if this one is suppressed too."""
        now = self._clock()
        earned = (now - self._seen) / self._seconds
        self._credit, self._seen = min(float(self._burst), self._credit + earned), now
        if self._credit < 1:
            self._left_out += 1
            return None
        self._credit -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def get_logger(component: str) -> ComponentLogger:
    """The logger of one package; `component` becomes the `logger` field of each line."""
    return ComponentLogger(component)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Logging filter: False for asyncio's report of a cancelled database connection attempt."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, ConnectionError) and str(error) == DRIVER_NOISE)


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging, ours and the libraries', to `stream` (stderr) in one format."""
    stream = stream or sys.stderr
    as_json = log_format == "json"
    handler = (JsonHandler if as_json else logging.StreamHandler)(stream)
    handler.setFormatter(LineFormatter(as_json=as_json, colors=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(NOTICES).setLevel(min(logging.INFO, root.level))
    # It logs at length about connections that it could not close properly, and replaces them.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    for noisy in ("apscheduler", "alembic", "asyncio", "uvicorn.access", "aiohttp"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("asyncio").addFilter(is_worth_logging)
    _structlog.configure()
