"""`siteatlas serve`: the API and the scheduler in one process."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.hosting.connections import base_url, listening
from siteatlas.cli.hosting.server import Service
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.output import is_terminal, print_message, write_line

app = typer.Typer(rich_markup_mode=None)


@app.command()
def serve(
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Serve only the API; leave jobs to workers.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.  [env: SITEATLAS_HOST]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 picks a free port.  [env: SITEATLAS_PORT]"),
    ] = None,
    uds: Annotated[
        Path | None,
        typer.Option(help="Unix socket to listen on instead.  [env: SITEATLAS_SOCKET]"),
    ] = None,
    insecure_no_auth: Annotated[
        bool,
        typer.Option(
            "--insecure-no-auth",
            help="Listen on any address although there is no access key: everyone may enter.",
        ),
    ] = False,
) -> None:
    """Serve the API and run queued jobs until stopped.

    Addresses other than loopback need an access key: see siteatlas keys create.
    """
    settings = prepare(log_level="info", host=host, port=port, socket=uds)
    service = Service(settings, run_scheduler=not no_scheduler, insecure_no_auth=insecure_no_auth)
    with listening(settings) as listener:
        run(service.run(listener, lambda: _print_service_url(listener)))


def _print_service_url(listener: socket.socket) -> None:
    url = base_url(listener)
    print_message(f"Siteatlas is listening on {url} (press Ctrl-C to stop)")
    if not is_terminal(sys.stdout):
        write_line(url)
