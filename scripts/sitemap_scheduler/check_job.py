"""Show one job."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import check_job, run_script

if __name__ == "__main__":
    run_script(check_job)
