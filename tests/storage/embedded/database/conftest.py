"""What the tests of the embedded server share: data directories, and a look at what is left."""

from __future__ import annotations

from tests.fixtures.embedded import (
    copied_dir,
    data_dir,
    initialized_dir,
    kill_clients,
    tmp_dir,
)

__all__ = ["copied_dir", "data_dir", "initialized_dir", "kill_clients", "tmp_dir"]
