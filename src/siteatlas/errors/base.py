"""The root of the error tree, and a walk through all of it."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class SiteatlasError(Exception):
    """Something went wrong inside Siteatlas."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        super().__init__(self.message)

    @property
    def details(self) -> dict[str, Any]:
        """What a program needs to react to this error, beyond its code."""
        return {}


def error_classes() -> list[type[SiteatlasError]]:
    """Every class of the tree, parents before children."""

    def error_subtree(cls: type[SiteatlasError]) -> list[type[SiteatlasError]]:
        """An error class and all its subclasses."""
        subclasses = cls.__subclasses__()
        return [cls, *(below for child in subclasses for below in error_subtree(child))]

    return error_subtree(SiteatlasError)
