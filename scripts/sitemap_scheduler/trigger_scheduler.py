"""Run the scheduler once and wait for its jobs: trigger_scheduler.py"""

from __future__ import annotations

from siteatlas.cli.seed_scripts import trigger_scheduler, run_script

if __name__ == "__main__":
    run_script(trigger_scheduler)
