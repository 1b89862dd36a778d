"""Values that are converted without typer are those that typer would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperArgument, TyperOption

from siteatlas.cli.main import COMMANDS, app, load_command
from siteatlas.cli.terminal.options import NEEDS_TYPER, plain_value

TYPED = ["text", "5", "0.5", "table", "jsonl", "auto", "failed", "", " text "]
SHARED = {"ctx": typer.Context(typer.main.get_command(app))}


def parameters(command: Any) -> Iterator[TyperArgument | TyperOption]:
    yield from command.params
    for inner in getattr(command, "commands", {}).values():
        yield from parameters(inner)


def every_parameter() -> list[Any]:
    commands = [typer.main.get_command(app), *map(load_command, COMMANDS)]
    return [parameter for command in commands for parameter in parameters(command)]


def values_for(parameter: Any) -> list[Any]:
    several = parameter.multiple or parameter.nargs == -1
    typed: list[Any] = [[text, "more"] for text in TYPED] if several else list(TYPED)
    return [None, parameter.default, *typed]


def test_every_plain_value_is_the_one_that_typer_gives():
    converted = 0
    for parameter in every_parameter():
        for value in values_for(parameter):
            plain = plain_value(parameter, value)
            if plain is NEEDS_TYPER:
                continue
            converted += 1
            expected = parameter.get_runtime_param().coerce(value, param=parameter, **SHARED)
            assert plain == expected, (parameter.name, value)
            assert type(plain) is type(expected), (parameter.name, value)
    assert converted > 200


@pytest.mark.parametrize(
    ("option", "value"), [("format", "poem"), ("max_urls", "5"), ("since", "2026-01-31")]
)
def test_what_must_be_checked_is_left_to_typer(option: str, value: str):
    scan = load_command("scan")
    (parameter,) = (one for one in scan.params if one.name == option)
    assert isinstance(parameter, TyperOption)
    assert plain_value(parameter, value) is NEEDS_TYPER


def test_a_required_value_that_is_missing_is_left_to_typer():
    (sites,) = (one for one in load_command("scan").params if one.name == "sites")
    assert isinstance(sites, TyperArgument)
    assert plain_value(sites, None) is NEEDS_TYPER
