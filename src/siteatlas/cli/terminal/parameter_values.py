"""Converts the values of a command line that need no validation.

Everything else is left to typer, which validates with pydantic: importing it and building a
validator for every parameter of `scan` would take a fifth of the time before its first request.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from typer.core import TyperArgument, TyperOption

Parameter = TyperArgument | TyperOption
NEEDS_TYPER = object()


def plain_parameters(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """The parameters of a command, of which typer validates only what is no plain value."""
    parameters = get_params(ctx)
    for parameter in parameters:
        if isinstance(parameter, Parameter) and "process_value" not in vars(parameter):
            process = partial(_process, parameter, parameter.process_value)
            parameter.process_value = process  # type: ignore[method-assign]
    return parameters


def _process(parameter: Parameter, validate: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """Convert a command-line value; only what is no plain value is left to typer."""
    converted = plain_value(parameter, value)
    if converted is NEEDS_TYPER:
        return validate(ctx, value)
    return parameter.callback(ctx, parameter, converted) if parameter.callback else converted


def plain_value(parameter: Parameter, value: Any) -> Any:
    """The value as typer would convert it; NEEDS_TYPER if only typer can tell."""
    if value is None:
        return NEEDS_TYPER if parameter.required else _absent(parameter)
    if value is parameter.default:
        return value
    descriptor = parameter.type_descriptor
    if descriptor.parameter_info.parser is not None:
        return NEEDS_TYPER
    if descriptor.annotation is str and isinstance(value, str):
        return value
    if descriptor.annotation == list[str] and isinstance(value, (list, tuple)) and value:
        return list(value) if all(isinstance(item, str) for item in value) else NEEDS_TYPER
    return _choice(descriptor.annotation, value)


def _absent(parameter: Parameter) -> tuple[()] | None:
    """The value of an option or argument that is not on the command line."""
    return () if parameter.multiple or parameter.nargs == -1 else None


def _choice(annotation: Any, value: Any) -> Any:
    """The enum member for a command-line value; NEEDS_TYPER if it is no such choice."""
    if not (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return NEEDS_TYPER
    return next((choice for choice in annotation if choice.value == value), NEEDS_TYPER)
