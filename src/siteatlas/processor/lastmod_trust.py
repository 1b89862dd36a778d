"""Whether the dates of a document are believed.

Some generators write the time of generation into every entry. Where nearly all dates move and
nothing else does, a date says nothing about its page.
"""

from __future__ import annotations

from typing import NamedTuple

MIN_DATED = 20
MANY_MOVED = 0.9
FEW_MOVED = 0.1
READS_IN_A_ROW = 2


class LastmodTrust(NamedTuple):
    """Whether dates are trusted, and how many reads in a row have spoken for the opposite."""

    trusted: bool = True
    streak: int = 0

    def after_read(self, *, dated: int, moved: int) -> LastmodTrust:
        """The trust after a complete read.

        `dated` entries had a date; of `moved` ones nothing but the date had changed.
        """
        if self.trusted:
            against = dated >= MIN_DATED and moved >= MANY_MOVED * dated
        else:
            against = moved < FEW_MOVED * dated
        if not against:
            return LastmodTrust(self.trusted, 0)
        if self.streak + 1 < READS_IN_A_ROW:
            return LastmodTrust(self.trusted, self.streak + 1)
        return LastmodTrust(not self.trusted, 0)
