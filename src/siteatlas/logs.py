"""Structured logging: one event per line, as text or as JSON.

Owns the format of a line and what it may contain. Each package defines its own events.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import structlog
from structlog.contextvars import bound_contextvars
from structlog.typing import EventDict, Processor

from siteatlas.safe_text import DISRUPTIVE, escape

CONTROL_CHARACTERS = re.compile(f"[{DISRUPTIVE}]")
SECRET_IN_QUERY = re.compile(
    r"(?i)([?&](?:[a-z_-]*(?:token|secret|password|passwd|signature|api_?key|auth)[a-z_-]*)=)[^&\s\"']+"
)
CREDENTIALS_IN_URL = re.compile(r"(://)[^/@\s]+@")
# What all three of them need; most texts have none of it.
SUSPICIOUS = re.compile(f"[{DISRUPTIVE}@=]")

# The logger of command messages, which are shown at any level.
NOTICES = "cli"
# The database driver makes a future that nobody awaits when a connection attempt is cancelled.
DRIVER_NOISE = "unexpected connection_lost() call"

job_context = bound_contextvars


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes lines that are JSON objects."""


def stderr_is_json() -> bool:
    """Whether programs read stderr: then nothing but log lines may be written there."""
    handlers = logging.getLogger().handlers
    return any(isinstance(one, JsonHandler) and one.stream is sys.stderr for one in handlers)


class ComponentLogger(structlog.stdlib.BoundLogger):
    """Says nothing until logging is configured: structlog would print on the stdout of a program
    that uses Siteatlas as a library.
    """

    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        if not structlog.is_configured():
            return None
        return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)


class Throttle:
    """Keeps a flood of equal events from becoming a flood of lines.

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
        """How many events had no line before this one; None when this one has none either."""
        now = self._clock()
        earned = (now - self._seen) / self._seconds
        self._credit, self._seen = min(float(self._burst), self._credit + earned), now
        if self._credit < 1:
            self._left_out += 1
            return None
        self._credit -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def get_logger(component: str) -> structlog.stdlib.BoundLogger:
    """The logger of one package; `component` becomes the `logger` field of each line."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, wrapper_class=ComponentLogger, logger_factory_args=(component,)
    )
    return logger


def clean_text(value: str) -> str:
    """Text from outside made safe for one line: no control characters, no secrets."""
    if SUSPICIOUS.search(value) is None:
        return value
    value = CREDENTIALS_IN_URL.sub(r"\1***@", value)
    value = SECRET_IN_QUERY.sub(r"\1***", value)
    return CONTROL_CHARACTERS.sub(escape, value)


def clean_values(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Apply `clean_text` to every value of a log event."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = clean_text(value)
        elif value is not None and not isinstance(value, (int, float, bool, tuple, type)):
            event[key] = value if key == "exc_info" else clean_text(str(value))
    return event


def is_no_driver_noise(record: logging.LogRecord) -> bool:
    """Filter: whether a line of asyncio tells more than that a connection attempt was given up."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, ConnectionError) and str(error) == DRIVER_NOISE)


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging, ours and the libraries', to `stream` (stderr) in one format."""
    stream = stream or sys.stderr
    as_json = log_format == "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        clean_values,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                pad_event_to=28,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    handler = (JsonHandler if as_json else logging.StreamHandler)(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(NOTICES).setLevel(min(logging.INFO, root.level))
    # It tells at length of connections that it could not close in good order, and replaces them.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    for noisy in ("apscheduler", "alembic", "asyncio", "uvicorn.access", "aiohttp"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("asyncio").addFilter(is_no_driver_noise)
