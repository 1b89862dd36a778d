"""Set a job or sitemap back."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import reset_sitemap_status, run_script

if __name__ == "__main__":
    run_script(reset_sitemap_status)
