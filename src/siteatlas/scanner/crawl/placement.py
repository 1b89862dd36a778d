"""Where listed pages are: on the site, on another site, or in a private network.

This is only recorded; pages are stored as listed and never fetched. The common case takes one
comparison.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from siteatlas.net.address import WebAddress
from siteatlas.net.egress import is_private_host
from siteatlas.scanner.crawl.site_hosts import SiteHosts
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.tally import Tally
from siteatlas.scanner.reading.url_column import all_begin_with

HOST = re.compile(r"(https?://(\[[^\]/?#]*\]|[^/?#:\\]*)[^/?#\\]*)", re.IGNORECASE)
MAX_KNOWN_HOSTS = 256
MAX_OWN_ORIGINS = 16


class Placement:
    """Records the misplaced pages of one document in its tally.

    A document that robots.txt names, or a descendant of an index that it names, may list any page
    of its host: `anywhere`.
    """

    def __init__(
        self, document: WebAddress, hosts: SiteHosts, tally: Tally, *, anywhere: bool = False
    ) -> None:
        directory = document.path.partition("?")[0].rpartition("/")[0] + "/"
        self._origin = document.origin + "/"
        self._scope = None if anywhere or directory == "/" else document.origin + directory
        self._hosts = hosts
        self._tally = tally
        self._own_origins: tuple[str, ...] = ()
        self._codes: dict[str, ProblemCode | None] = {}

    def note(self, urls: Sequence[str]) -> None:
        """Record misplaced pages: `off_host`, `private_host` or, outside the directory, `scope`."""
        if not urls:
            return
        if not self._own_origins:
            self._placement_of_url(urls[0])
        if not (self._own_origins and all_begin_with(self._own_origins[0], urls)):
            self._note_hosts(urls)
        if self._scope is not None and not all_begin_with(self._scope, urls):
            self._note_scope(self._scope, urls)

    def _note_hosts(self, urls: Sequence[str]) -> None:
        """Record the listed pages that are not on the site."""
        own = self._own_origins
        for url in [url for url in urls if not url.startswith(own)]:
            code = self._placement_of_url(url)
            if code is not None:
                self._tally.note(code, url=url)

    def _note_scope(self, scope: str, urls: Sequence[str]) -> None:
        """Record the listed pages that are outside the directory of their sitemap."""
        for url in urls:
            if url.startswith(self._origin) and not url.startswith(scope):
                self._tally.note(ProblemCode.SCOPE, url=url)

    def _placement_of_url(self, url: str) -> ProblemCode | None:
        """Whether a page is outside the site that is crawled: the code to record, or None."""
        match = HOST.match(url)
        if match is None:
            return None
        origin, host = match[1], match[2].lower()
        if host not in self._codes:
            if len(self._codes) >= MAX_KNOWN_HOSTS:
                self._codes.clear()
            self._codes[host] = self._placement_of_host(host)
        if self._codes[host] is None:
            self._add_own_origin(origin + "/")
        return self._codes[host]

    def _add_own_origin(self, origin: str) -> None:
        """Remember an origin of the site, so that its next pages need one comparison."""
        if len(self._own_origins) < MAX_OWN_ORIGINS and origin not in self._own_origins:
            self._own_origins = (*self._own_origins, origin)

    def _placement_of_host(self, host: str) -> ProblemCode | None:
        """Whether a host is outside the site that is crawled: the code to record, or None."""
        if self._hosts.belongs(host):
            return None
        return ProblemCode.PRIVATE_HOST if is_private_host(host) else ProblemCode.OFF_HOST
