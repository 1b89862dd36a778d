"""Siteatlas finds the sitemaps of any web site, stores every URL with its history, and watches."""

from importlib.metadata import version

__version__ = version("siteatlas")
