"""The fields of a submitted HTML form. Only URL-encoded forms are read: no page uploads files."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import Request

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

    def is_checked(self, name: str) -> bool:
        """Whether a checkbox is checked."""
        return name in self._values


async def read_form(request: Request) -> Form:
    """The submitted form; the body is limited like that of every request."""
    body = (await request.body()).decode("utf-8", "replace")
    return Form(parse_qs(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
