"""The fields of a submitted HTML form. Only URL-encoded forms are read: no page uploads files."""

from __future__ import annotations

import math
from urllib.parse import parse_qs

from fastapi import Request

from siteatlas.errors import InputError

MAX_FIELDS = 1_000


class Form:
    """The values of a form by name."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def value(self, name: str) -> str:
        """The value of a field without surrounding blanks; empty if it is absent."""
        return self._values.get(name, [""])[-1].strip()

    def many(self, name: str) -> list[str]:
        """All values of a field that can be given several times."""
        return [value.strip() for value in self._values.get(name, []) if value.strip()]

    def number(self, name: str, what: str, *, least: float, most: float) -> float | None:
        """A number within these bounds; None for an empty field. `what` names it in the error."""
        text = self.value(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise InputError(f"{what} must be a number from {least:,} to {most:,}.")
        return value

    def whole_number(self, name: str, what: str, *, most: int) -> int | None:
        """A whole number above zero; None for an empty field."""
        value = self.number(name, what, least=1, most=most)
        if value is not None and not value.is_integer():
            raise InputError(f"{what} must be a whole number.")
        return None if value is None else int(value)

    def is_checked(self, name: str) -> bool:
        """Whether a checkbox is checked."""
        return name in self._values


async def read_form(request: Request) -> Form:
    """The submitted form; the body is limited like that of every request."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return Form(parse_qs(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise InputError(f"A form can have at most {MAX_FIELDS:,} fields.") from error
