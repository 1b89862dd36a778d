"""Words for the values of a command line that typer refuses.

Typer shows those of pydantic, which are written for programmers.
"""

from __future__ import annotations

from pydantic import ValidationError
from typer import BadParameter

# Put by the library before the words of a choice that it does not know.
MESSAGE_PREFIX = "Value error, "
# By the type of pydantic's error; the names are those of its context, and the value.
MESSAGES = {
    "int_parsing": "'{input}' is not a whole number.",
    "int_parsing_size": "'{input}' is too large.",
    "float_parsing": "'{input}' is not a number.",
    "finite_number": "'{input}' is not a finite number.",
    "uuid_parsing": "'{input}' is not a UUID.",
    "greater_than": "must be greater than {gt:g}.",
    "greater_than_equal": "must be at least {ge:g}.",
    "less_than": "must be less than {lt:g}.",
    "less_than_equal": "must be at most {le:g}.",
}


def usage_message(error: BadParameter) -> str:
    """What is wrong with a value, without the words of the validation library."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        (first, *_) = cause.errors()
        if form := MESSAGES.get(first["type"]):
            return form.format(input=first["input"], **first.get("ctx", {}))
    return error.message.removeprefix(MESSAGE_PREFIX)
