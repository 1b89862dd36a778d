"""Scan one sitemap or run the scheduler."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import process_sitemap, run_script

if __name__ == "__main__":
    run_script(process_sitemap)
