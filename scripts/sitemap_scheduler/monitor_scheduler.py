"""Watch the scheduler."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("monitor_scheduler")
