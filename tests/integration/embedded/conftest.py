"""What the tests of the embedded server share: data directories, and a look at what is left."""

from __future__ import annotations

from tests.fixtures.embedded import (
    copied_dir,
    data_dir,
    made_once,
    no_other_user_is_left,
    place,
)

__all__ = ["copied_dir", "data_dir", "made_once", "no_other_user_is_left", "place"]
