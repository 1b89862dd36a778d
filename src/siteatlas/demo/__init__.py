"""Small web sites on loopback with every kind of sitemap, for a first look and for tests.

Stands alone: it knows nothing of the scanner, so that it can judge it.
"""

from siteatlas.demo.server import DemoServer, DemoSite

__all__ = ["DemoServer", "DemoSite"]
