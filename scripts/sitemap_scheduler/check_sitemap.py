"""Show how far the scan of a site is."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import check_sitemap, run_script

if __name__ == "__main__":
    run_script(check_sitemap)
