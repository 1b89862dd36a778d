"""Watch the scheduler."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import monitor_scheduler, run_script

if __name__ == "__main__":
    run_script(monitor_scheduler)
