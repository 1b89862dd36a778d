"""The benchmark of publications works, and all its changes are published."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench.publication import measure_publication


@pytest.mark.slow
async def test_a_small_publication_is_measured() -> None:
    # Not `tmp_path`: the user that the server runs as may not enter its parents.
    with tempfile.TemporaryDirectory(prefix="siteatlas-publication-") as folder:
        figure = await measure_publication(Path(folder), urls=2_000, changes=100)
    assert figure.changes_by_kind == {"added": 40, "moved": 10, "removed": 40}
    assert 0 < figure.head_seconds < figure.seconds
