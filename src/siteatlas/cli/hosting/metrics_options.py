"""The options for the metrics port of workers, and how the workers of a group share it.

Apart from the worker itself, so that the parent process of a group starts without database and
network.
"""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.errors import ConfigurationError
from siteatlas.setting_types import MAX_PORT
from siteatlas.settings import Settings

MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_PORT,
        help=(
            "Serve /metrics and /health on this port; 0 picks a free port. With --processes, "
            "consecutive ports are used.  [env: SITEATLAS_METRICS_PORT]"
        ),
    ),
]


MetricsHost = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on for --metrics-port.  [default: 127.0.0.1]  "
        "[env: SITEATLAS_METRICS_HOST]"
    ),
]


def port_of(settings: Settings, number: int, count: int) -> int | None:
    """The metrics port of the process `number` of `count`: the first has the port of the settings,
    each other one the next.
    """
    first = settings.metrics_port
    if not first:
        return first
    if first + count - 1 > MAX_PORT:
        raise ConfigurationError(
            f"{count} processes need the metrics ports {first} to {first + count - 1}, but the "
            f"highest port is {MAX_PORT}. Choose a lower --metrics-port."
        )
    return first + number
