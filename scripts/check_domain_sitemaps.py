"""Show the sitemaps of a site."""

from __future__ import annotations

from sitemap_scheduler.launch import launch

if __name__ == "__main__":
    launch("check_domain_sitemaps")
