"""Small web sites on loopback with every kind of sitemap, for the demo and for tests.

Does not import the scanner, so that it can be used to test it.
"""

from siteatlas.demo.server import DemoServer, DemoSite

__all__ = ["DemoServer", "DemoSite"]
