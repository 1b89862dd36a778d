"""The command tree. Command modules are imported on first use, so that help is fast."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from siteatlas.cli.hosting.init_process import run_below_init
from siteatlas.cli.terminal.context import ColorChoice, begin
from siteatlas.cli.terminal.options import plain_parameters

PROGRAM = "siteatlas"
COMPLETION_OPTIONS = {"install_completion", "show_completion"}
VALUE_NAMES = {
    "<int range>": "N",
    "<int>": "N",
    "<float range>": "NUMBER",
    "<float>": "NUMBER",
    "<str>": "TEXT",
}

# Each command and its line in the help; most have a module of their name in `commands`.
COMMANDS = {
    "scan": "Read the sitemaps of a site now, without a database.",
    "demo": "Scan small demo sites on this machine.",
    "serve": "Serve the API and run queued jobs.",
    "worker": "Run queued jobs without serving the API.",
    "domains": "Manage sites: add, list, show, tag, pause, resume, release, remove.",
    "sitemaps": "List the stored sitemaps of a site.",
    "urls": "List the stored URLs of a site, or search all sites.",
    "sections": "Count the URLs of a site by section or month.",
    "export": "Export stored URLs or changes as CSV, JSON Lines or Parquet.",
    "scans": "List the scans of a site, with their numbers.",
    "compare": "Compare the URLs of a site with a list, another site, or two scans.",
    "changes": "Print what was added, changed and removed.",
    "robots": "Print the stored robots.txt of a site, and how it changed.",
    "problems": "List the stored problems in a site's sitemaps.",
    "jobs": "Manage jobs: list, show, watch, retry, cancel.",
    "scheduler": "Control the scheduler: run-once, status.",
    "webhooks": "Manage webhooks: create, list, show, change, test, replay, and more.",
    "keys": "Manage access keys: create, list, revoke, reset, generate.",
    "audit": "List the audit trail: who changed what.",
    "db": "Manage the database: upgrade, current, backup, restore, upgrade-server.",
    "doctor": "Check the setup and say what to do.",
    "config": "Show the settings and the source of each value.",
    "help": "Show help for a command, as --help does.",
}
# Commands that share a module with another; there they are called `<name>_app`.
SHARED_MODULES = {
    "audit": "keys",
    "help": "config",
    "problems": "scans",
    "robots": "sitemaps",
    "sections": "sitemaps",
}
# The library names this one error of its tree, and gives its parent no name.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class CommandTree(TyperGroup):
    """A group whose commands are names and help lines until one of them is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line, rich_markup_mode=None))
        _name_values(self)

    def resolve_command(self, *arguments: Any) -> Any:
        """Put the command itself in the place of its name."""
        name, _, rest = super().resolve_command(*arguments)
        return name, load_command(name) if name else None, rest

    def get_params(self, *arguments: Any) -> Any:
        """The options before the command."""
        return plain_parameters(super().get_params, *arguments)

    def parse_args(self, *arguments: Any) -> Any:
        """Read the options before the command."""
        with _plain_usage_errors():
            return super().parse_args(*arguments)

    def invoke(self, *arguments: Any) -> Any:
        """Read the rest of the line and run the command."""
        with _plain_usage_errors():
            return super().invoke(*arguments)

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the command line; errors become words and an exit code."""
        try:
            return super().main(*arguments, **keywords)
        except Exception as error:  # noqa: BLE001 the error boundary of one command
            from siteatlas.cli.terminal.errors import exit_with

            exit_with(error)


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    """Shorten typer's usage errors; if stderr is JSON, report them as an object."""
    try:
        yield
    except typer.BadParameter as error:
        from siteatlas.cli.terminal.errors import usage_message

        error.message = usage_message(error)
        _exit_with_json_usage_error(error)
        raise
    except USAGE_ERROR as error:
        _exit_with_json_usage_error(error)
        raise


def _exit_with_json_usage_error(error: Any) -> None:
    """If stderr is JSON, report a usage error of the command tree as an object and exit."""
    from siteatlas.cli.terminal.errors import keep_to_json, print_error_message
    from siteatlas.errors import InputError
    from siteatlas.logs import stderr_is_json

    keep_to_json()
    if stderr_is_json():
        message = error.format_message() or "Missing command."
        print_error_message(InputError.code, message, "List the commands: siteatlas help")
        raise typer.Exit(error.exit_code)


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the module of a command and build it."""
    is_startup = not gc.isenabled()
    # What is imported stays; looking for garbage in between takes a tenth of the startup.
    gc.disable()
    try:
        module = import_module(f"siteatlas.cli.commands.{SHARED_MODULES.get(name, name)}")
        app_name = f"{name}_app" if name in SHARED_MODULES else "app"
        command_app: typer.Typer = getattr(module, app_name)
    finally:
        if is_startup:
            # Otherwise the first collection visits all of it, which takes another tenth.
            gc.freeze()
        gc.enable()
    command = typer.main.get_command(command_app)
    assert isinstance(command, (TyperCommand, TyperGroup))
    command.name = name
    _tidy_help(command)
    return command


def _tidy_help(command: Any) -> None:
    """Name arguments in usage lines as other programs do; completion belongs to the root alone."""
    command.params = [p for p in command.params if p.name not in COMPLETION_OPTIONS]
    command.get_params = partial(plain_parameters, command.get_params)
    _name_values(command)
    for inner in getattr(command, "commands", {}).values():
        _tidy_help(inner)


def _name_values(command: Any) -> None:
    """Show values by the names that other programs use, not by the types of Python."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.get_usage_pieces = partial(_argument_usage, parameter)  # type: ignore[method-assign]
            parameter.display_type_rich = _no_type  # type: ignore[method-assign]
        elif isinstance(parameter, TyperOption):
            written = parameter.display_type_rich
            parameter.display_type_rich = partial(_value_name, written)  # type: ignore[method-assign]


def _no_type(ctx: Any) -> str:  # noqa: ARG001 typer passes it by name
    """The type of an argument in the help of a command: none is shown."""
    return ""


def _value_name(written: Callable[..., str | None], ctx: Any) -> str:
    """The name of an option's value in the help of a command, such as N or TEXT."""
    name = written(ctx=ctx) or ""
    return VALUE_NAMES.get(name, name.removeprefix("<").removesuffix(">"))


def _argument_usage(argument: TyperArgument, _context: Any) -> list[str]:
    """An argument in the usage line of a command in the tree; brackets if it is optional."""
    name = argument.display_name_raw + ("..." if argument.nargs != 1 else "")
    return [name if argument.required else f"[{name}]"]


app = typer.Typer(
    name=PROGRAM,
    cls=CommandTree,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from siteatlas import __version__

        typer.echo(f"{PROGRAM} {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def root(
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Show more messages; -vv shows tracebacks.",
        ),
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")] = False,
    color: Annotated[
        ColorChoice, typer.Option(help="When to use colors; overrides NO_COLOR and FORCE_COLOR.")
    ] = ColorChoice.AUTO,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Find the sitemaps of any site, store every URL, and rescan the site on a schedule.

    Start with: siteatlas scan example.com
    """
    begin(verbose, quiet=quiet, color=color)


def main() -> None:
    """Run the command line of this process."""
    # Until the command is loaded.
    gc.disable()
    run_below_init(partial(app, prog_name=PROGRAM))
