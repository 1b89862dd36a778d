"""Structured logging: an event name and its values, as text for people or as JSON for programs.

Each package has a logger and defines its own events. `configure_logging` sends them, and what
libraries log, to one stream. Before that, only warnings and errors are logged, with `logging`:
structlog would print on the stdout of a program that uses Siteatlas as a library.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from siteatlas.text import clean_text

# The logger of command messages, which are shown at any level.
NOTICES = "cli"
# The database driver makes a future that nobody awaits when a connection attempt is cancelled.
DRIVER_NOISE = "unexpected connection_lost() call"


def get_logger(component: str) -> ComponentLogger:
    """The logger of one package; `component` becomes the `logger` field of each line."""
    return ComponentLogger(component)


class ComponentLogger:
    """The logger of one package: an event name and its values, never formatted text."""

    def __init__(self, component: str) -> None:
        self._component = component
        # Follows the configuration of structlog at the time of each event.
        self._logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
            None, wrapper_class=structlog.stdlib.BoundLogger, logger_factory_args=(component,)
        )

    def debug(self, event: str, **values: Any) -> None:
        """Log an event that helps to find a bug in Siteatlas."""
        if structlog.is_configured():
            self._logger.debug(event, **values)

    def info(self, event: str, **values: Any) -> None:
        """Log an expected event."""
        if structlog.is_configured():
            self._logger.info(event, **values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that an operator may have to look at."""
        if structlog.is_configured():
            self._logger.warning(event, **values)
        else:
            self._log_plainly(logging.WARNING, event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log a failure."""
        if structlog.is_configured():
            self._logger.error(event, **values)
        else:
            self._log_plainly(logging.ERROR, event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log a failure with the traceback of the exception that is being handled."""
        if structlog.is_configured():
            self._logger.exception(event, **values)  # noqa: LOG004 the caller handles one
        else:
            self._log_plainly(logging.ERROR, event, {"exc_info": True} | values)

    def _log_plainly(self, level: int, event: str, values: dict[str, Any]) -> None:
        values = structlog.contextvars.get_contextvars() | values
        exc_info = values.pop("exc_info", None)
        text = " ".join([event, *(f"{key}={value}" for key, value in values.items())])
        name = f"siteatlas.{self._component}"
        logging.getLogger(name).log(level, "%s", clean_text(text), exc_info=exc_info)


def job_context(**values: Any) -> AbstractContextManager[None]:
    """Add these values to every line that is logged inside the block."""
    return structlog.contextvars.bound_contextvars(**values)


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging, ours and the libraries', to `stream` (stderr) in one format."""
    stream = stream or sys.stderr
    as_json = log_format == "json"
    handler = (JsonHandler if as_json else logging.StreamHandler)(stream)
    handler.setFormatter(_line_formatter(as_json=as_json, colors=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(NOTICES).setLevel(min(logging.INFO, root.level))
    # It logs at length about connections that it could not close properly, and replaces them.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    for noisy in ("apscheduler", "alembic", "asyncio", "uvicorn.access", "aiohttp"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("asyncio").addFilter(is_worth_logging)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes lines that are JSON objects."""


def stderr_is_json() -> bool:
    """Whether logging writes JSON lines to stderr; nothing else may be written there then."""
    handlers = logging.getLogger().handlers
    return any(isinstance(one, JsonHandler) and one.stream is sys.stderr for one in handlers)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Logging filter: False for asyncio's report of a cancelled database connection attempt."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, ConnectionError) and str(error) == DRIVER_NOISE)


def _line_formatter(*, as_json: bool, colors: bool) -> structlog.stdlib.ProcessorFormatter:
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
        foreign_pre_chain=_shared_processors,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )


def _clean_values(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = clean_text(value)
        elif value is not None and not isinstance(value, (int, float, bool, tuple, type)):
            event[key] = value if key == "exc_info" else clean_text(str(value))
    return event


# Applied to our events and to the records of libraries.
_shared_processors: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _clean_values,
]


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
