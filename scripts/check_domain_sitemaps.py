"""Show the sitemaps of a site."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import check_domain_sitemaps, run_script

if __name__ == "__main__":
    run_script(check_domain_sitemaps)
