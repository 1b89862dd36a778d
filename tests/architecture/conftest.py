"""What the rules for the code as a whole look at."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def package(project: Path) -> Path:
    """The folder of the package in the checkout."""
    return project / "src" / "siteatlas"
