"""The types of settings: how text or a value of a TOML file becomes a value within its limits.

A value that cannot be used raises ValueError with what is expected. `settings.py` declares the
settings and names the one that is invalid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

MAX_PORT = 65535
NAME_SERVER = re.compile(r"(?P<host>[0-9.]+|\[[^\]]+\])(?::(?P<port>[0-9]{1,5}))?")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")


class Secret:
    """Text that is not shown unless `get_secret_value` is called."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('**********')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class NumberLimits:
    """The least and the greatest value; `above` is a limit that is not itself included."""

    def __init__(
        self,
        least: float | None = None,
        greatest: float | None = None,
        *,
        above: float | None = None,
    ) -> None:
        self.least = least
        self.greatest = greatest
        self.above = above

    def check(self, value: float) -> None:
        """Raise ValueError for a value outside the limits, and for one that is no number."""
        if self.greatest is not None and not value <= self.greatest:
            raise ValueError(f"it must be {self.greatest} or less")
        if self.above is not None and not value > self.above:
            raise ValueError(f"it must be more than {self.above}")
        if self.least is not None and not value >= self.least:
            raise ValueError(f"it must be {self.least} or more")


class Integer(NumberLimits):
    """A whole number."""

    def convert(self, value: object) -> int:
        """Convert the value of a setting to an integer within its limits."""
        number = _integer(value)
        self.check(number)
        return number


class Number(NumberLimits):
    """A number, with or without a fraction."""

    def convert(self, value: object) -> float:
        """Convert the value of a setting to a float within its limits."""
        number = _number(value)
        self.check(number)
        return number


class Text:
    """A line of text without spaces around it; `check` returns the text or raises ValueError."""

    def __init__(
        self,
        max_length: int | None = None,
        check: Callable[[str], str] = str,
    ) -> None:
        self.max_length = max_length
        self._check = check

    def convert(self, value: object) -> str:
        """Convert the value of a setting to text, stripped and checked."""
        text = _text(value).strip()
        if self.max_length is not None and not text:
            raise ValueError("it must not be empty")
        if self.max_length is not None and len(text) > self.max_length:
            raise ValueError(f"it is longer than {self.max_length} characters")
        return self._check(text)


class SecretText:
    """Text such as a password or a URL that may contain one."""

    def convert(self, value: object) -> Secret:
        """Convert the value of a setting to text that is not shown."""
        return Secret(_text(value).strip())


class FilePath:
    """A path in the file system, which need not exist."""

    def convert(self, value: object) -> Path:
        """Convert the value of a setting to a path."""
        if isinstance(value, (str, Path)):
            return Path(str(value).strip())
        raise ValueError("it must be a path")


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: object) -> str:
        """Return the value of a setting if it is one of the words; ValueError otherwise."""
        if isinstance(value, str) and value in self.words:
            return value
        *most, last = map(repr, self.words)
        raise ValueError(f"it must be {', '.join(most)} or {last}")


SettingType = Integer | Number | Text | SecretText | FilePath | Choice


class Declaration:
    """What is known of a setting besides its default."""

    def __init__(self, type: SettingType, env: str, description: str) -> None:
        self.type = type
        self.env = env
        self.description = description


def setting(
    type: SettingType,
    default: object = MISSING,
    *,
    factory: Any = MISSING,
    env: str,
    description: str,
) -> Any:
    """A field of a dataclass of settings; the metadata hold its `declaration`."""
    declaration = {"declaration": Declaration(type, env, description)}
    return field(default=default, default_factory=factory, metadata=declaration)


def plain_characters(text: str) -> str:
    """The value of a text setting, if an HTTP header can hold it; ValueError otherwise."""
    if text.isascii() and text.isprintable():
        return text
    raise ValueError("only ASCII letters, digits, spaces and punctuation are allowed")


def name_server_list(text: str) -> str:
    """The value of a text setting, if it lists IP addresses, with or without ports."""
    for server in filter(None, map(str.strip, text.split(","))):
        match = NAME_SERVER.fullmatch(server)
        host, port = (match["host"], int(match["port"] or 53)) if match else (server, 53)
        try:
            ip_address(host.strip("[]"))
            if not 0 < port <= MAX_PORT:
                raise ValueError
        except ValueError as error:
            raise ValueError(
                f"{server!r} is not an IP address; "
                "write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::1]"
            ) from error
    return text


def _text(value: object) -> str:
    """The value of a setting as a string; ValueError for another type."""
    if isinstance(value, str):
        return value
    raise ValueError("it must be text")


def _integer(value: object) -> int:
    """The value of a setting as an integer; ValueError if it has a fraction or is no number."""
    if isinstance(value, str):
        if WHOLE_NUMBER.fullmatch(value.strip()) is None:
            raise ValueError("it must be a whole number")
        return _parse_digits(value.strip().partition(".")[0])
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("it must be a finite number")
        if not value.is_integer():
            raise ValueError("it must be a whole number")
    if isinstance(value, (int, float)):
        return int(value)
    raise ValueError("it must be a whole number")


def _parse_digits(digits: str) -> int:
    """Parse the digits of an integer setting; ValueError if there are too many."""
    try:
        return int(digits)
    except ValueError as error:
        raise ValueError("it has too many digits") from error


def _number(value: object) -> float:
    """The value of a setting as a float; ValueError if it is no number."""
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        raise ValueError("it must be a number")  # noqa: TRY004 the caller names it
    try:
        # Digits of other scripts are more often a mistake than a number.
        return float(value.encode("ascii"))
    except ValueError as error:
        raise ValueError("it must be a number") from error
