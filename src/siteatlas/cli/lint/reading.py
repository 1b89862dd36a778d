"""Reads what lint is given (files, folders, sites, stdin) and judges it; all files together.

The scanner's network is imported for sites only, so that a file is judged at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory

from siteatlas.cli.terminal.options import STDIN
from siteatlas.errors import InputError, ScanError, SiteatlasError
from siteatlas.findings.judging import NO_ADDRESS, Finding
from siteatlas.findings.markup import MarkupJudge
from siteatlas.findings.positions import decoded_text, located
from siteatlas.findings.site import SiteJudge
from siteatlas.scanner.crawl.local_file import read_local_file
from siteatlas.scanner.events import DocumentClosed
from siteatlas.scanner.reading.decoding import GZIP_MAGIC
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.settings import Settings

STDIN_NAME = "stdin"
SITEMAP_ENDINGS = (".xml", ".xml.gz", ".txt", ".txt.gz", ".rss", ".atom")
# Of the text of a document of a site; what is longer waits on disk.
MAX_HELD_BYTES = 8 * 1024 * 1024
# A site that cannot be read is not a clean one.
NOT_READ = frozenset({"sitemap-network-error", "sitemap-refused-to-us", "sitemap-payment-required"})


@dataclass(frozen=True, slots=True)
class Network:
    """What the command line says about requests; the settings are read for these only."""

    read_settings: Callable[[], Settings]
    allow: list[str] = field(default_factory=list)
    only: bool = False


@dataclass(slots=True)
class Linted:
    """What was found, how many documents were read, and what could not be, with the reason."""

    findings: list[Finding] = field(default_factory=list)
    documents: int = 0
    unread: list[tuple[str, str]] = field(default_factory=list)
    is_sampled: bool = False

    def take(self, judge: SiteJudge) -> None:
        """Add what the end of a site or of all files shows."""
        self.findings += judge.close()
        self.is_sampled = self.is_sampled or judge.is_sampled


async def lint_all(targets: list[str], now: datetime, network: Network) -> Linted:
    """Judge all targets; raises InputError for what is neither a file nor a site."""
    linted = Linted()
    files, sites = divided(targets)
    with stdin_file(wanted=STDIN in targets) as spooled:
        if spooled is not None:
            files.append(spooled)
        judge = SiteJudge("robots.txt", now, is_local=True)
        names = {str(file): STDIN_NAME if file is spooled else file.as_posix() for file in files}
        for file in sorted(files, key=lambda file: file.name != "robots.txt"):
            try:
                linted.findings += await _lint_file(file, judge)
                linted.documents += 1
            except (OSError, InputError) as error:
                reason = error.message if isinstance(error, InputError) else str(error.strerror)
                linted.unread.append((names[str(file)], reason))
        linted.take(judge)
        linted.findings = list(_with_places(linted.findings, names))
    for site in sites:
        await _lint_site(site, now, network, linted)
    linted.unread += [
        (one.document, one.detail or one.rule.title)
        for one in linted.findings
        if one.code in NOT_READ
    ]
    return linted


def divided(targets: list[str]) -> tuple[list[Path], list[str]]:
    """The files, also those of folders, and the sites among the targets, each once."""
    files: dict[Path, None] = {}
    sites: dict[str, None] = {}
    for text in targets:
        path = Path(text).expanduser() if text.startswith("~/") else Path(text)
        if text == STDIN:
            continue
        if os.path.isdir(path):  # noqa: PTH112 does not raise for a name that is too long
            found = sitemaps_below(path)
            if not found:
                raise InputError(f"The folder {text} has no sitemap.")
            files |= dict.fromkeys(found)
        elif _is_file_name(text) or os.path.isfile(path):  # noqa: PTH113
            files[path] = None
        else:
            sites[text] = None
    return list(files), list(sites)


def _is_file_name(text: str) -> bool:
    is_path = text.startswith(("./", "../", "/", "~/"))
    return is_path or ("://" not in text and text.lower().endswith(SITEMAP_ENDINGS))


def sitemaps_below(folder: Path) -> list[Path]:
    """The sitemaps and robots.txt files of a folder, in order; other XML and text is left out."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [file for file in files if file.name == "robots.txt" or _is_sitemap(file)]


def _is_sitemap(file: Path) -> bool:
    name = file.name.lower()
    if not name.endswith(SITEMAP_ENDINGS):
        return False
    if name.startswith("sitemap"):
        return True
    if name.endswith((".txt", ".txt.gz")):
        return False
    with file.open("rb") as opened:
        head = opened.read(4096)
    if head.startswith(GZIP_MAGIC):
        head = next((text for text in decoded_text(file) if text), "")[:4096].encode()
    return b"<urlset" in head or b"<sitemapindex" in head


@contextmanager
def stdin_file(*, wanted: bool) -> Iterator[Path | None]:
    """A file with what is on stdin: the place of a finding is looked for in a second pass."""
    if not wanted:
        yield None
        return
    with TemporaryDirectory(prefix="siteatlas-") as folder:
        path = Path(folder) / "stdin.xml"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def _with_places(findings: list[Finding], names: dict[str, str]) -> Iterator[Finding]:
    by_document: dict[str, list[Finding]] = {}
    for finding in findings:
        by_document.setdefault(finding.document, []).append(finding)
    for document, found in by_document.items():
        for finding in located(found, decoded_text(Path(document))):
            yield replace(finding, document=names[document])


async def _lint_file(file: Path, judge: SiteJudge) -> list[Finding]:
    if file.name == "robots.txt":
        return judge.add_robots(file.read_bytes(), str(file))  # noqa: ASYNC240 nothing else waits
    markup = MarkupJudge(judge.notes_of(str(file)))
    reader = DocumentReader(base_url=NO_ADDRESS, on_text=markup.feed, judge_left_out=True)
    found: list[Finding] = []
    try:
        async with aclosing(read_local_file(file, reader=reader)) as events:
            async for event in events:
                if isinstance(event, DocumentClosed):
                    markup.feed("", final=True)
                found += judge.observe(event)
    except ScanError:
        pass  # the closed document has said so
    return found


async def _lint_site(text: str, now: datetime, network: Network, linted: Linted) -> None:
    from siteatlas.cli.scan.options import policy_with_allowed, scan_analyzer
    from siteatlas.net.address import parse_site
    from siteatlas.net.egress import EgressPolicy
    from siteatlas.scanner.options import ScanOptions

    settings = network.read_settings()
    address = parse_site(text)
    policy = policy_with_allowed(EgressPolicy.from_text(settings.egress_allow), network.allow)
    policy.check(address)
    options = ScanOptions(robots_unreachable=settings.robots_unreachable)
    if network.only and not address.is_site_root:
        options = replace(options, only_document=address.url)
    judge = SiteJudge(address.at("/robots.txt").url, now)
    texts = _SiteTexts(judge)
    options = replace(options, on_text=texts.add)
    try:
        analyzer = scan_analyzer(settings, policy, [], None)
        async with aclosing(analyzer.scan(address, options)) as events:
            async for event in events:
                if isinstance(event, DocumentClosed):
                    linted.documents += 1
                    linted.findings += texts.close(event)
                else:
                    linted.findings += judge.observe(event)
    except SiteatlasError as error:
        if not judge.fail(error):
            linted.unread.append((text, error.message))
    finally:
        texts.release()
    linted.take(judge)


class _SiteTexts:
    """The texts of documents that are being read: their markup is judged, and places are found."""

    def __init__(self, judge: SiteJudge) -> None:
        self._judge = judge
        self._open: dict[str, tuple[MarkupJudge, SpooledTemporaryFile[str]]] = {}

    def add(self, url: str, text: str) -> None:
        """Take the next part of the text of a document."""
        if url not in self._open:
            kept = SpooledTemporaryFile(  # noqa: SIM115 closed with the document or at the end
                MAX_HELD_BYTES, "w+", encoding="utf-8", errors="replace", newline=""
            )
            self._open[url] = MarkupJudge(self._judge.notes_of(url)), kept
        markup, all_text = self._open[url]
        markup.feed(text)
        all_text.write(text)

    def close(self, event: DocumentClosed) -> list[Finding]:
        """The findings of a document, with their places."""
        if event.url not in self._open:
            return self._judge.observe(event)
        markup, text = self._open.pop(event.url)
        markup.feed("", final=True)
        with text:
            text.seek(0)
            return located(self._judge.observe(event), iter(partial(text.read, 256 * 1024), ""))

    def release(self) -> None:
        """Drop the texts of what turned out to be no document."""
        for _, text in self._open.values():
            text.close()
