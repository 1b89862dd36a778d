"""What every reader of a shape does: read one document from memory, print its CPU time as JSON.

Uses the standard library alone, because it runs inside the environments of the peers. Importing
and reading the file are not measured.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ADDRESS = "https://www.shop.example/sitemap.xml"


def time_reading(read: Callable[[bytes, str], int]) -> None:
    """Run `MODULE KIND FILE`: `read` takes bytes and kind, and returns the number of URLs."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    kind, file = sys.argv[1:]
    content = Path(file).read_bytes()
    gc.collect()
    start = time.process_time()
    urls = read(content, kind)
    seconds = time.process_time() - start
    json.dump({"seconds": seconds, "urls": urls}, sys.stdout)
