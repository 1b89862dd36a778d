"""Queue a scan of a site."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("add_test_sitemap")
