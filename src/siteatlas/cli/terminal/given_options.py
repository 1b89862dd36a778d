"""Which options a command line gives, where one option excludes most others."""

from __future__ import annotations

import typer

COMMAND_LINE = "COMMANDLINE"


def given_options(context: typer.Context) -> dict[str, str]:
    """The options on the command line of a command: the name of each parameter, as typed."""
    options = [p for p in context.command.params if p.param_type_name == "option"]
    return {p.name: p.opts[0] for p in options if p.name and _is_given(context, p.name)}


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether the value of an option comes from the command line."""
    source = context.get_parameter_source(name)
    # By name: typer does not export the type.
    return source is not None and source.name == COMMAND_LINE
