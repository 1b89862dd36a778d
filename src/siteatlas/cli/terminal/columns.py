"""The columns of a table: their names and what kind of values they have.

How a terminal shows them is `tables.py`; `output.py` writes them elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class ColumnKind(Enum):
    """What the values of a column are, which decides how they are shown and shortened.

    Prose is never shortened: it takes as many lines as it needs. A name stays whole on its line.
    """

    TEXT = auto()
    NAME = auto()
    PROSE = auto()
    URL = auto()
    AGE = auto()
    DATE = auto()
    COUNT = auto()
    STATUS = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """The header of a column; numbers are aligned to the right.

    A terminal narrower than `from_width` does not show it; other outputs always do.
    """

    name: str
    right: bool = False
    kind: ColumnKind = ColumnKind.TEXT
    from_width: int = 0
