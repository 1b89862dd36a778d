"""The root of the error tree, and a walk through all of it."""

from __future__ import annotations

import inspect
from typing import ClassVar


class SiteatlasError(Exception):
    """Something went wrong inside Siteatlas."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        super().__init__(self.message)


def error_classes() -> list[type[SiteatlasError]]:
    """Every class of the tree, parents before children."""

    def walk(cls: type[SiteatlasError]) -> list[type[SiteatlasError]]:
        return [cls, *(below for child in cls.__subclasses__() for below in walk(child))]

    return walk(SiteatlasError)
