"""Reads a site with advertools and fails unless it finds the expected pages.

Runs inside the environment of the peers: advertools_pages.py BASE_URL PAGES
"""

from __future__ import annotations

import logging
import sys

from advertools import sitemap_to_df  # type: ignore[import-not-found]


def main() -> None:
    base_url, expected = sys.argv[1], int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    found = len(sitemap_to_df(f"{base_url}/robots.txt"))
    if found != expected:
        raise SystemExit(f"found {found} pages, not {expected}")


if __name__ == "__main__":
    main()
