"""Show the sitemaps of a site: check_domain_sitemaps.py example.com"""

from __future__ import annotations

from siteatlas.cli.seed_scripts import check_domain_sitemaps, run_script

if __name__ == "__main__":
    run_script(check_domain_sitemaps)
