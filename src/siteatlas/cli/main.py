"""The command tree: `siteatlas` and its options, and which command is in which module.

The module of a command, and what reports errors, is imported on first use, so that help and shell
completion need neither the network nor the database.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import shell_complete
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from siteatlas.cli.hosting.init_process import run_below_init
from siteatlas.cli.terminal.context import ColorChoice, begin

PROGRAM = "siteatlas"


class Listed(NamedTuple):
    """A command in the help; `module` is its module in `commands` if that has another name."""

    line: str
    module: str | None = None


# The commands by the headings of the help.
HELP = {
    "Start": {
        "scan": Listed("Read the sitemaps of a site now, without a database."),
        "lint": Listed("Judge sitemaps in files or on sites, without a database."),
        "demo": Listed("Scan small demo sites on this machine."),
        "serve": Listed("Serve the API and run queued jobs."),
        "worker": Listed("Run queued jobs without serving the API."),
    },
    "Sites and URLs": {
        "domains": Listed("Manage sites: add, list, show, explain, tag, pause, and more."),
        "urls": Listed("List the stored URLs of a site, or search all sites."),
        "findings": Listed("List what is wrong with a site, or accept it."),
        "changes": Listed("Print what was added, changed and removed."),
        "export": Listed("Export stored URLs or changes as CSV, JSON Lines or Parquet."),
    },
    "Operate": {
        "jobs": Listed("Manage jobs: list, show, watch, retry, cancel."),
        "doctor": Listed("Check the setup and say what to do."),
    },
    "More": {
        "sitemaps": Listed("List the stored sitemaps of a site."),
        "sections": Listed("Count the URLs of a site by section or month.", "sitemaps"),
        "robots": Listed("Print the stored robots.txt of a site, and how it changed.", "sitemaps"),
        "policy": Listed("Print which agents may fetch what of a site.", "sitemaps"),
        "scans": Listed("List the scans of a site, with their numbers."),
        "problems": Listed("List the stored problems in a site's sitemaps.", "scans"),
        "rules": Listed("List what sitemaps are judged by, or explain one rule."),
        "compare": Listed("Compare the URLs of a site with a list, another site, or two scans."),
        "webhooks": Listed("Manage webhooks: create, list, show, change, test, replay, and more."),
        "keys": Listed("Manage access keys: create, list, revoke, reset, generate."),
        "audit": Listed("List the audit trail: who changed what.", "keys"),
        "scheduler": Listed("Control the scheduler: run-once, status."),
        "db": Listed("Manage the database: upgrade, back up, verify, restore, and more."),
        "config": Listed("Show the settings and the source of each value."),
        "help": Listed("Show help for a command, as --help does.", "config"),
    },
}
COMMANDS = {name: listed for section in HELP.values() for name, listed in section.items()}
# The library names this one error of its tree, and gives its parent no name.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class CommandTree(TyperGroup):
    """A group whose commands are names and help lines until one of them is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, listed in COMMANDS.items():
            self.add_command(TyperCommand(name, help=listed.line, rich_markup_mode=None))
        _name_values(self)

    def resolve_command(self, *arguments: Any) -> Any:
        """Put the command itself in the place of its name."""
        name, _, rest = super().resolve_command(*arguments)
        return name, load_command(name) if name else None, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the commands under their headings, all in the same columns."""
        width = max(map(len, COMMANDS))
        for heading, names in HELP.items():
            rows = [
                (
                    name.ljust(width),
                    self.commands[name].get_short_help_str(formatter.width - width - 6),
                )
                for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def parse_args(self, *arguments: Any) -> Any:
        """Read the options before the command."""
        if arguments[1][:1] == ["--show-completion"] and arguments[1][1:]:
            # The option itself prints that of the shell in which it runs.
            how = f"source_{arguments[1][1]}"
            raise typer.Exit(shell_complete(self, {}, PROGRAM, "_SITEATLAS_COMPLETE", how))
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
    try:
        yield
    except USAGE_ERROR as error:
        from siteatlas.cli.terminal.errors import report_usage_error

        report_usage_error(error)
        raise


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the module of a command and build it.

    Its typer app is called `app` in the module of its name, and `<name>_app` in another.
    """
    is_startup = not gc.isenabled()
    # What is imported stays; looking for garbage in between takes a tenth of the startup.
    gc.disable()
    try:
        shared = COMMANDS[name].module
        module = import_module(f"siteatlas.cli.commands.{shared or name}")
        command_app: typer.Typer = getattr(module, f"{name}_app" if shared else "app")
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
    # Completion belongs to the root alone.
    completion = {"install_completion", "show_completion"}
    command.params = [p for p in command.params if p.name not in completion]
    _name_values(command)
    for inner in getattr(command, "commands", {}).values():
        _tidy_help(inner)


def _name_values(command: Any) -> None:
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.get_usage_pieces = partial(_argument_usage, parameter)  # type: ignore[method-assign]
            parameter.display_type_rich = lambda ctx: ""  # type: ignore[method-assign] # noqa: ARG005
        elif isinstance(parameter, TyperOption):
            written = parameter.display_type_rich
            parameter.display_type_rich = partial(_value_name, written)  # type: ignore[method-assign]


def _value_name(written: Any, ctx: Any) -> str:
    match written(ctx=ctx) or "":
        case "<int>" | "<int range>":
            return "N"
        case "<float>" | "<float range>":
            return "NUMBER"
        case "<str>":
            return "TEXT"
        case name:
            return str(name).removeprefix("<").removesuffix(">")


def _argument_usage(argument: TyperArgument, _context: Any) -> list[str]:
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
