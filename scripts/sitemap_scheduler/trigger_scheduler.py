"""Run the scheduler once and wait for its jobs."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("trigger_scheduler")
