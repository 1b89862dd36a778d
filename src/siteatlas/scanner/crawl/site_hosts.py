"""Which hosts a scan may crawl: those of the site, and a few others that it names.

A site may name sitemaps on foreign hosts in robots.txt or in its home page: a few per registrable
domain, and a limited number per scan. An index may not: its entries are followed on hosts of the
site, on the host of the index itself and on hosts that the site named. A redirect counts like a
document. So a site can direct only a limited number of requests at third parties.
"""

from __future__ import annotations

from collections import Counter

from siteatlas.errors import ForeignHostLimit
from siteatlas.net.address import WebAddress, bare_host
from siteatlas.net.registrable_domain import is_registrable, registrable_domain

FOREIGN_DOCUMENTS_PER_DOMAIN = 20
FOREIGN_DOCUMENTS_PER_SCAN = 200


class SiteHosts:
    """The hosts of one site, and how many documents were requested on foreign ones."""

    def __init__(self, site_host: str) -> None:
        self.site = site_host
        self._bare = bare_host(site_host)
        # `www.co.uk` is a site of its own; what else is below `co.uk` is not part of it.
        self._below = "." + (self._bare if is_registrable(self._bare) else site_host)
        self._named: set[str] = set()
        self._foreign: Counter[str] = Counter()
        self._foreign_documents = 0

    def name(self, host: str) -> None:
        """Allow a host that the site itself named."""
        self._named.add(host)

    def belongs(self, host: str) -> bool:
        """Whether a host is the site's own, a subdomain of it, or the domain above it."""
        bare = bare_host(host)
        return (
            bare == self._bare
            or (host.endswith(self._below) and "." in self._bare)
            or (self._bare.endswith("." + bare) and is_registrable(bare))
        )

    def follows(self, host: str, parent_host: str) -> bool:
        """Whether the crawl follows an entry of an index to this host."""
        return self.belongs(host) or host == parent_host or host in self._named

    def allow_document(self, host: str, parent_host: str | None) -> bool:
        """Count one document of the crawl on a host; False if a limit of foreign ones is reached.

        What a foreign host lists on itself is not counted.
        """
        if self.belongs(host) or host == parent_host:
            return True
        domain = registrable_domain(host)
        if (
            self._foreign[domain] >= FOREIGN_DOCUMENTS_PER_DOMAIN
            or self._foreign_documents >= FOREIGN_DOCUMENTS_PER_SCAN
        ):
            return False
        self._foreign[domain] += 1
        self._foreign_documents += 1
        return True

    def follow_redirect(self, source: WebAddress, target: WebAddress) -> None:
        """Count a redirect of the crawl like a document; ForeignHostLimit if there are too many."""
        if not self.allow_document(target.host, source.host):
            raise ForeignHostLimit
