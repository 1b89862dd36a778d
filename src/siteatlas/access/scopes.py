"""What an access key allows. `admin` includes the others."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """What the holder of a key may do."""

    READ = "read"
    SCAN = "scan"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


def requested_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """The scopes that are asked for by name."""
    return frozenset(map(Scope, names))


def granted_scopes(stored: Iterable[str]) -> frozenset[Scope]:
    """The scopes that a stored key grants; a text of another version grants nothing."""
    scopes = frozenset(Scope(text) for text in stored if text in Scope.__members__.values())
    return ALL_SCOPES if Scope.ADMIN in scopes else scopes
