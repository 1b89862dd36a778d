"""Which hosts a scan may crawl: those of the site, and a few others that it names.

A site may name sitemaps on foreign hosts in robots.txt or in its home page, a few of them. An
index may not: its entries are followed on hosts of the site, on the host of the index itself and
on hosts that the site named. A redirect counts like a document. So neither an index nor a redirect
can direct a scan at a third-party host.
"""

from __future__ import annotations

from collections import Counter

from siteatlas.errors import ForeignHostLimit
from siteatlas.net.address import WebAddress, bare_host
from siteatlas.net.registrable_domain import is_registrable

FOREIGN_DOCUMENTS_PER_HOST = 20


class SiteHosts:
    """The hosts of one site, and how many documents were requested on foreign ones."""

    def __init__(self, site_host: str) -> None:
        self.site = bare_host(site_host)
        self._named: set[str] = set()
        self._foreign: Counter[str] = Counter()

    def name(self, host: str) -> None:
        """Allow a host that the site itself named."""
        self._named.add(host)

    def belongs(self, host: str) -> bool:
        """Whether a host is the site's own, a subdomain of it, or the domain above it."""
        host = bare_host(host)
        return (
            host == self.site
            or host.endswith("." + self.site)
            or (self.site.endswith("." + host) and is_registrable(host))
        )

    def follows(self, host: str, parent_host: str) -> bool:
        """Whether the crawl follows an entry of an index to this host."""
        return self.belongs(host) or host == parent_host or host in self._named

    def allow_document(self, host: str, parent_host: str | None) -> bool:
        """Count one document of the crawl on a host; False if a foreign host has reached its limit.

        What a foreign host lists on itself is not counted.
        """
        if self.belongs(host) or host == parent_host:
            return True
        self._foreign[host] += 1
        return self._foreign[host] <= FOREIGN_DOCUMENTS_PER_HOST

    def follow_redirect(self, source: WebAddress, target: WebAddress) -> None:
        """Count a redirect of the crawl like a document; ForeignHostLimit if there are too many."""
        if not self.allow_document(target.host, source.host):
            raise ForeignHostLimit
