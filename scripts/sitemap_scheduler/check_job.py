"""Show one job."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("check_job")
