"""Times advertools: advertools_shapes.py KIND FILE. It makes a data frame of all fields.

It reads from an address alone, so it is given that of a temporary file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from advertools import sitemap_to_df  # type: ignore[import-not-found]

from bench.shape_timing import time_reading

READ_KINDS = {"pages"}


def read(content: bytes, kind: str) -> int:
    if kind not in READ_KINDS:
        return 0
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        Path(file.name).write_bytes(content)
        table = sitemap_to_df(Path(file.name).as_uri(), recursive=False)
    return int(table["loc"].notna().sum()) if "loc" in table else 0


if __name__ == "__main__":
    time_reading(read)
