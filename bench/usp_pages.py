"""Reads a site with ultimate-sitemap-parser and fails unless it finds the expected pages.

Runs inside the environment of the peers: usp_pages.py BASE_URL PAGES
"""

from __future__ import annotations

import logging
import sys

from usp.tree import sitemap_tree_for_homepage


def main() -> None:
    base_url, expected = sys.argv[1], int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    found = sum(1 for _ in sitemap_tree_for_homepage(f"{base_url}/").all_pages())
    if found != expected:
        raise SystemExit(f"found {found} pages, not {expected}")


if __name__ == "__main__":
    main()
