"""Run the scheduler once and wait for its jobs."""

from __future__ import annotations

from siteatlas.cli.seed_scripts import run_script, trigger_scheduler

if __name__ == "__main__":
    run_script(trigger_scheduler)
