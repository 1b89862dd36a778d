"""Which hosts belong to a site, and which others it may send us to.

A site may name sitemaps on foreign hosts in robots.txt or in its home page, a few of them. An
index may not: its entries are followed on hosts of the site, on the host of the index itself and
on hosts that the site named. A redirect counts like a document. So nobody's index or redirects turn
us against somebody else's host.
"""

from __future__ import annotations

from collections import Counter

from siteatlas.errors import ForeignHostLimit
from siteatlas.net.address import WebAddress
from siteatlas.net.registrable_domain import is_registrable

FOREIGN_DOCUMENTS_PER_HOST = 20


def bare_host(host: str) -> str:
    """A host without its leading `www.`, to compare hosts of one site."""
    return host.removeprefix("www.")


class SiteHosts:
    """The hosts of one site, and how many documents were requested on foreign ones."""

    def __init__(self, site_host: str) -> None:
        self._site = bare_host(site_host)
        self._named: set[str] = set()
        self._foreign: Counter[str] = Counter()

    def name(self, host: str) -> None:
        """The site itself named this host."""
        self._named.add(host)

    def belongs(self, host: str) -> bool:
        """Whether a host is the site's own, a subdomain of it, or the domain above it."""
        host = bare_host(host)
        return (
            host == self._site
            or host.endswith("." + self._site)
            or (self._site.endswith("." + host) and is_registrable(host))
        )

    def follows(self, host: str, parent_host: str) -> bool:
        """Whether an entry of an index may lead to this host."""
        return self.belongs(host) or host == parent_host or host in self._named

    def allow_document(self, host: str, parent_host: str | None) -> bool:
        """Count one document on a host; False when a foreign host has had its share.

        What a foreign host lists itself, on itself, is not counted: it asked for it.
        """
        if self.belongs(host) or host == parent_host:
            return True
        self._foreign[host] += 1
        return self._foreign[host] <= FOREIGN_DOCUMENTS_PER_HOST

    def follow_redirect(self, source: WebAddress, target: WebAddress) -> None:
        """Count a redirect like a document; ForeignHostLimit when the host has had its share."""
        if not self.allow_document(target.host, source.host):
            raise ForeignHostLimit
