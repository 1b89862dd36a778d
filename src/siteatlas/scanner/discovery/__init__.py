"""Where the sitemaps of a site may be: robots.txt, home page, common paths."""
