"""What every reader of a shape does: read one document from memory, print its CPU time as JSON.

Uses the standard library alone, because it runs inside the environments of the peers. Importing
and reading the file are not measured, and neither is a first tiny document.
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
PAGE = "https://www.shop.example/1"
# Read before the clock starts: some modules are only imported by the first reading.
FIRST = {
    "pages": f"<urlset><url><loc>{PAGE}</loc></url></urlset>",
    "feed": f'<rss version="2.0"><channel><item><link>{PAGE}</link></item></channel></rss>',
    "text": f"{PAGE}\n",
}


def time_reading(read: Callable[[bytes, str], int]) -> None:
    """Run `MODULE KIND FILE`: `read` takes bytes and kind, and returns the number of URLs."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    kind, file = sys.argv[1:]
    content = Path(file).read_bytes()
    read(FIRST[kind].encode(), kind)
    gc.collect()
    start = time.process_time()
    urls = read(content, kind)
    seconds = time.process_time() - start
    json.dump({"seconds": seconds, "urls": urls}, sys.stdout)
