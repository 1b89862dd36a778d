"""Queue a scan of a site."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import add_test_sitemap, run_script

if __name__ == "__main__":
    run_script(add_test_sitemap)
