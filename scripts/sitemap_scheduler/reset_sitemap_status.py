"""Reset a job or sitemap."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("reset_sitemap_status")
