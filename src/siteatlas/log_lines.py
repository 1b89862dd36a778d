"""The lines of the log, rendered with structlog: as text for people or as JSON for programs.

Owns the fields of a line and what they may contain. `logs.py` imports this module with the first
line that is written.
"""

from __future__ import annotations

from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from siteatlas.safe_text import clean_text


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
