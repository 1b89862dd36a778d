"""Show the jobs that wait."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("debug_pending_jobs")
