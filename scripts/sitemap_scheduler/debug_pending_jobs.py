"""Show the jobs that wait."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import debug_pending_jobs, run_script

if __name__ == "__main__":
    run_script(debug_pending_jobs)
