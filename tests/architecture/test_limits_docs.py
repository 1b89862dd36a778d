"""The limits of the reference are those of the code."""

from __future__ import annotations

from pathlib import Path

from siteatlas.api.limits import BODY_BYTES, KIB
from siteatlas.api.routes import LARGER_BODIES


def test_the_reference_names_the_limit_of_every_body(project: Path):
    page = (project / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| body: ")]
    limits = [f"{BODY_BYTES // KIB} KiB"]
    limits += [f"{limit // KIB // KIB} MiB" for limit in LARGER_BODIES.values()]
    assert [limit for limit in limits if limit not in row] == []
