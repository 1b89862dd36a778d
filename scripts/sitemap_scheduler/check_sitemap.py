"""Show how far the scan of a site is."""

from __future__ import annotations

from launch import launch

if __name__ == "__main__":
    launch("check_sitemap")
