"""The targets of `siteatlas scan`: sites, local files, or a list of sites from stdin."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from siteatlas.aio.daemon_thread import DaemonWorker
from siteatlas.cli.scanning.local_paths import local_path, may_be_site
from siteatlas.cli.scanning.messages import print_scan_error
from siteatlas.cli.scanning.site_readers import ScanReaders
from siteatlas.cli.terminal.output import is_terminal, print_message
from siteatlas.cli.terminal.site_list import MAX_LINE_CHARS, STDIN, site_in_line
from siteatlas.errors import InputError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.crawl.local_file import read_local_file
from siteatlas.scanner.events import ScanEvent
from siteatlas.scanner.options import ScanOptions

NO_DOCUMENT = "--only needs the address of a sitemap, such as https://example.com/sitemap.xml."


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """One thing to read; a file has no `address`."""

    name: str
    events: Callable[[], AsyncGenerator[ScanEvent, None]]
    typed: str = ""
    address: WebAddress | None = None


class ScanTargets:
    """Turns arguments into targets. Addresses are checked before any request.

    `usual` is the policy of other commands, without what was allowed for this scan. With `only`,
    an address means the one document there. `readers`, if set, may read documents of the sites.
    """

    def __init__(
        self,
        analyzer: SitemapAnalyzer,
        policy: EgressPolicy,
        usual: EgressPolicy,
        options: ScanOptions,
        *,
        only: bool = False,
    ) -> None:
        self._analyzer = analyzer
        self.policy = policy
        self._usual = usual
        self._options = options
        self._only = only
        self.worst_refusal = 0
        self.readers: ScanReaders | None = None

    def of(self, text: str) -> ScanTarget:
        """The target of an argument; raises InputError for what is neither file nor site."""
        path = local_path(text)
        if path is None:
            return self._site_target(text)
        if may_be_site(text):
            print_message(f"Reading the file {text}. The site of this name would be https://{text}")
        return ScanTarget(str(path), lambda: read_local_file(path, self._options), text)

    async def listed(self, sites: Sequence[str] = (STDIN,)) -> AsyncIterator[ScanTarget]:
        """The targets given as arguments or on stdin, without duplicates.

        An invalid one is reported, recorded in `worst_refusal` and skipped.
        """
        from_stdin = list(sites) == [STDIN]
        seen: set[str] = set()
        async for text in _stdin_sites() if from_stdin else _argument_sites(sites):
            try:
                target = self._site_target(text) if from_stdin else self.of(text)
            except InputError as error:
                print_scan_error(error, text, self.policy, may_be_file=not from_stdin)
                self.worst_refusal = max(self.worst_refusal, error.exit_code)
                continue
            if target.name not in seen:
                seen.add(target.name)
                yield target

    def say_how_to_watch(self, address: WebAddress) -> None:
        """Print the command that watches a site, with the allow entries that only this scan had."""
        command = f"siteatlas domains add {address.domain}"
        if self._usual.is_own(address) or not self.policy.is_own(address):
            print_message(f"Watch this site: {command}")
            return
        entries = shlex.quote(",".join(self.policy.for_site(address).entries))
        print_message(f"Watch this site: SITEATLAS_EGRESS_ALLOW={entries} {command}")
        print_message("The service that scans it needs the same SITEATLAS_EGRESS_ALLOW.")

    def _site_target(self, text: str) -> ScanTarget:
        """The target of a scan for the address of a site; raises InputError if not allowed."""
        address = parse_site(text)
        self.policy.check(address)
        name = address.domain if address.is_site_root else address.url
        options = self._options
        if self._only:
            if address.is_site_root:
                raise InputError(NO_DOCUMENT)
            options = replace(options, only_document=address.url)

        def events() -> AsyncGenerator[ScanEvent, None]:
            """Scan the site of this target."""
            readers = self.readers.of_site(name) if self.readers else None
            return self._analyzer.scan(address, options, readers=readers)

        return ScanTarget(name, events, text, address)


async def single_target(target: ScanTarget) -> AsyncIterator[ScanTarget]:
    """The list of targets of a scan of one site or file."""
    yield target


async def _argument_sites(sites: Sequence[str]) -> AsyncIterator[str]:
    """The sites among the arguments of a scan, as an asynchronous iterator."""
    for site in sites:
        yield site


async def _stdin_sites() -> AsyncIterator[str]:
    """The sites that `siteatlas scan -` reads from stdin."""
    async for line in _stdin_lines():
        if site := site_in_line(line):
            yield site


async def _stdin_lines() -> AsyncIterator[bytes]:
    if is_terminal(sys.stdin):
        print_message("Type one site per line; press Ctrl-D to finish.")
    thread = DaemonWorker("list")
    while line := await thread.submit(lambda: sys.stdin.buffer.readline(MAX_LINE_CHARS)):
        yield line
