"""Judges what concerns several documents: a scan of a site, or files that belong together.

Takes the events of the scanner, judges each document beside them, and robots.txt as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from siteatlas.errors import AddressError, SiteatlasError
from siteatlas.findings.document import DocumentJudge
from siteatlas.findings.judging import Finding, Notes, Sample
from siteatlas.findings.rules import rule_of
from siteatlas.net.address import parse_url
from siteatlas.scanner.discovery.robots import (
    MAX_BYTES,
    AgentRules,
    parse_directives,
    parse_robots,
)
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    ProblemSeen,
    RobotsRead,
    ScanEvent,
    SitemapType,
)
from siteatlas.scanner.problem_codes import ProblemCode

SEARCH_ENGINES = ("Googlebot", "Bingbot")
# Beyond these, what documents have in common is no longer judged: 150 MB of memory.
MAX_COMPARED_URLS = 1_000_000
MAX_ALTERNATES = 500_000
_sort_query = re.compile(r"\?([^#\n]*&[^#\n]*)").sub


class SiteJudge:
    """The judge of one site, or of local files, which have no addresses of their own.

    `robots` is the address or the path under which findings about robots.txt and about the site as
    a whole are listed.
    """

    def __init__(self, robots: str, now: datetime, *, is_local: bool = False) -> None:
        self._now = now
        self._is_local = is_local
        self._notes = Notes(robots)
        self._open: dict[str, DocumentJudge] = {}
        # By the folder of a robots.txt, which is empty for a site; then by agent.
        self._rules: dict[str, dict[str, AgentRules]] = {}
        self._robots_origin = ""
        self._parents: dict[str, str] = {}
        self._errors: set[str] = set()
        self._of_index: dict[str, Notes] = {}
        self._hashes: dict[str, str] = {}
        self._urls = _Urls()
        self._alternates = _Alternates()

    @property
    def is_sampled(self) -> bool:
        """Whether there was more than could be compared."""
        return self._urls.is_full or self._alternates.is_full

    def notes_of(self, document: str) -> Notes:
        """Where else findings of a document that is being read can be added."""
        return self._judge_of(document).notes

    def observe(self, event: ScanEvent) -> list[Finding]:
        """Judge an event; the findings of a document come when it is closed."""
        match event:
            case EntriesRead():
                judge = self._judge_of(event.url)
                judge.add_entries(event.columns)
                self._urls.compare(event.url, event.columns.urls, judge.notes)
                self._alternates.add(event.columns.urls, event.columns.extras, judge.notes)
                if rules := self._rules_for(event.url):
                    self._judge_access(event.columns.urls, rules, judge.notes)
            case ChildrenFound():
                self._judge_of(event.url).add_children(event.children)
                self._judge_cycles(event)
            case DocumentOpened():
                self._judge_discovery(event)
            case DocumentClosed():
                return self._close(event)
            case RobotsRead():
                self._judge_robots(event)
            case CandidateJudged(reason=ProblemCode.SOFT_404):
                self._notes.add("sitemap-soft-404", [Sample(event.url)])
            case CandidateJudged(reason=ProblemCode.CROSS_HOST):
                self._judge_index_of(event.url).add("index-cross-host", [Sample(event.url)])
            case ProblemSeen(code=ProblemCode.DEPTH_LIMIT):
                where = [Sample(event.url)] if event.url else []
                self._notes.add("index-too-deep", where)
            case ProblemSeen() if (rule := rule_of(event.code)) is not None:
                self._notes.add(rule, detail=event.detail or "")
            case _:
                pass
        return []

    def fail(self, error: SiteatlasError) -> bool:
        """Judge why a scan found nothing; False if no rule says why."""
        code = rule_of(error.code)
        if code is not None and error.code not in self._errors:
            self._notes.add(code, detail=error.message)
        return code is not None

    def add_robots(self, content: bytes, document: str) -> list[Finding]:
        """Judge a robots.txt file, whose rules hold for later documents in and below its folder."""
        notes = Notes(document)
        judge_robots_text(content, notes)
        self._take_rules(content, str(Path(document).absolute().parent))
        return notes.findings()

    def close(self) -> list[Finding]:
        """The findings that only all documents together show."""
        found = self._notes.findings()
        for notes in self._of_index.values():
            found += notes.findings()
        return found + list(self._alternates.findings(self._urls))

    def _judge_of(self, url: str) -> DocumentJudge:
        if url not in self._open:
            self._open[url] = DocumentJudge(url, self._now, is_local=self._is_local)
        return self._open[url]

    def _judge_index_of(self, child: str) -> Notes:
        """Where findings about a child of an index go, which may be closed already."""
        parent = self._parents.get(child)
        if parent is None:
            return self._notes
        if parent in self._open:
            return self._open[parent].notes
        return self._of_index.setdefault(parent, Notes(parent))

    def _judge_discovery(self, event: DocumentOpened) -> None:
        notes = self.notes_of(event.url)
        if self._is_local:
            return
        where = [Sample(event.requested_url)]
        if event.url != event.requested_url:
            notes.add("sitemap-redirected", where)
        if event.method is DiscoveryMethod.COMMON_PATH:
            notes.add("sitemap-orphan")
        elif event.method in {DiscoveryMethod.HTML_LINK, DiscoveryMethod.HTTP_HEADER}:
            notes.add("sitemap-not-in-robots")
        if event.type is SitemapType.INDEX and event.parent_url is not None:
            self._judge_index_of(event.requested_url).add("index-in-index", where)
        if not self._is_allowed(event.url):
            notes.add("sitemap-blocked-by-robots")

    def _judge_cycles(self, event: ChildrenFound) -> None:
        above, ancestors = event.url, {event.url}
        while (above := self._parents.get(above, "")) and above not in ancestors:
            ancestors.add(above)
        for child in event.children:
            if child.url in ancestors and not self._is_local:
                self.notes_of(event.url).add("index-cycle", [Sample(child.url)])
            else:
                self._parents.setdefault(child.url, event.url)

    def _close(self, event: DocumentClosed) -> list[Finding]:
        judge = self._judge_of(event.url)
        self._errors.add(event.error_code or "")
        if event.outcome is DocumentOutcome.UNREAD and not self._is_local:
            if event.method is DiscoveryMethod.SITEMAP_INDEX:
                notes = self._judge_index_of(event.requested_url)
                notes.add("index-child-dead", [Sample(event.requested_url)])
            elif event.method is DiscoveryMethod.ROBOTS_TXT:
                self._notes.add("robots-names-dead-sitemap", [Sample(event.requested_url)])
        if event.content_hash is not None:
            first = self._hashes.setdefault(event.content_hash, event.url)
            if first != event.url and ProblemCode.DUPLICATE_CONTENT not in event.problems:
                judge.notes.add("sitemaps-identical", detail=f"the same as {first}")
        del self._open[event.url]
        self._urls.end(event.url)
        return judge.close(event)

    def _judge_robots(self, event: RobotsRead) -> None:
        if event.error_code in {"robots_unreachable", "server_error"}:
            self._notes.add("robots-unreachable")
        if event.text is None:
            return
        content = event.text.encode("utf-8", "replace")
        judge_robots_text(content, self._notes)
        if event.truncated:
            self._notes.add("robots-too-large")
        self._robots_origin = event.url.removesuffix("/robots.txt")
        self._take_rules(content)

    def _take_rules(self, content: bytes, folder: str = "") -> None:
        robots = parse_robots(content)
        taken = self._rules[folder] = {}
        for agent in SEARCH_ENGINES:
            rules = robots.rules_for(agent)
            if rules not in taken.values():
                taken[agent] = rules

    def _rules_for(self, document: str) -> dict[str, AgentRules]:
        """Those of the site, or of the nearest robots.txt above a file."""
        if not self._is_local:
            return self._rules.get("", {})
        folders = map(str, Path(document).absolute().parents if self._rules else ())
        return next((self._rules[folder] for folder in folders if folder in self._rules), {})

    def _is_allowed(self, url: str) -> bool:
        path = self._path_under_rules(url)
        return path is None or all(rules.allows(path) for rules in self._rules_for(url).values())

    def _path_under_rules(self, url: str) -> str | None:
        """The path of a URL; None for another origin, which has rules of its own."""
        origin = self._robots_origin or "/".join(url.split("/", 3)[:3])
        if not url.startswith(origin):
            return None
        path = url[len(origin) :].partition("#")[0]
        return path if path.startswith("/") else f"/{path}" if path[:1] in ("", "?") else None

    def _judge_access(
        self, urls: Sequence[str], by_agent: dict[str, AgentRules], notes: Notes
    ) -> None:
        for url in urls:
            path = self._path_under_rules(url)
            for agent, rules in by_agent.items() if path is not None else ():
                rule = rules.rule_for(path or "/")
                if rule is not None and not rule.allow:
                    detail = f"{agent}: line {rule.line} of robots.txt, Disallow: {rule.pattern}"
                    notes.add("url-disallowed", [Sample(url)], detail=detail)
                    break


def judge_robots_text(content: bytes, notes: Notes) -> None:
    if len(content) > MAX_BYTES:
        notes.add("robots-too-large", detail=f"{len(content):,} bytes")
    lines = re.split(r"\r\n|\n|\r", content.decode("utf-8", "replace").lstrip("\ufeff"))
    for number, key, value in parse_directives(content):
        column = max("".join(lines[number - 1 : number]).find(value), 0) + 1 if value else 1
        sample = Sample(value=value, line=number, column=column)
        if key.startswith(("sitemap", "site-map")):
            if key != "sitemap":
                notes.add("robots-sitemap-misspelt", [Sample(None, key, 0, number, 1)])
            if not _is_absolute(value):
                notes.add("robots-sitemap-not-absolute", [sample])
        elif key == "content-signal" and not _is_content_signal(value):
            notes.add("content-signal-invalid", [sample])


def _is_absolute(value: str) -> bool:
    try:
        parse_url(value)
    except AddressError:
        return False
    return True


_is_content_signal = re.compile(
    r"(?:/\S*\s+)?(?:[a-z-]+\s*=\s*(?:yes|no|immediate|reference|full)\s*(?:,\s*|\Z))+",
    re.IGNORECASE,
).fullmatch


def normal_form(joined: str) -> str:
    """URLs, one a line, without what seldom makes a difference: case, last slash, order."""
    text = joined.lower().replace("/\n", "\n")
    return _sort_query(_in_order, text) if "&" in text else text


def _in_order(match: re.Match[str]) -> str:
    return "?" + "&".join(sorted(match[1].split("&")))


class _Urls:
    """The URLs of all documents as hashes: which are listed again, in the same form or another.

    Of each is known which document listed it last; other forms are compared inside a document. Kept
    are the forms that are not the URL itself, which in most documents are none.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._listed_by: dict[int, int] = {}
        self._open: dict[str, tuple[int, set[int]]] = {}
        self._begun = 0

    def __contains__(self, url: str) -> bool:
        return hash(url) in self._listed_by

    def end(self, document: str) -> None:
        """Forget what only concerns this document."""
        self._open.pop(document, None)

    def compare(self, document: str, urls: Sequence[str], notes: Notes) -> None:
        """Note what of the next URLs of a document is listed already."""
        self.is_full = self.is_full or len(self._listed_by) + len(urls) > MAX_COMPARED_URLS
        if self.is_full or not urls:
            return
        if document not in self._open:
            self._begun += 1
            self._open[document] = self._begun, set()
        number, forms_seen = self._open[document]
        hashes = list(map(hash, urls))
        forms = list(map(hash, normal_form("\n".join(urls) + "\n").split("\n")))
        new, new_forms = set(hashes), set(forms[:-1])
        is_new = self._listed_by.keys().isdisjoint(new | new_forms)
        if len(new) == len(new_forms) == len(urls) and is_new and forms_seen.isdisjoint(new_forms):
            self._listed_by.update(dict.fromkeys(hashes, number))
            forms_seen |= new_forms - new
            return
        for url, one, form in zip(urls, hashes, forms, strict=False):
            known = self._listed_by.get(one)
            if known == number:
                notes.add("url-twice", [Sample(url, again=1)])
            elif form in forms_seen or (form != one and self._listed_by.get(form) == number):
                notes.add("url-twins", [Sample(url)])
            if known not in {None, number}:
                notes.add("url-in-several-sitemaps", [Sample(url)])
            self._listed_by[one] = number
            if form != one:
                forms_seen.add(form)


class _Alternates:
    """The links between languages of all pages; equal addresses are kept once."""

    def __init__(self) -> None:
        self.is_full = False
        self._count = 0
        self._names: dict[str, str] = {}
        self._pages: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._hosts: set[str] = set()

    def add(self, urls: Sequence[str], extras: Sequence[object], notes: Notes) -> None:
        """Remember the alternates of the next pages of a document."""
        if self.is_full or not any(extras):
            return
        for url, more in zip(urls, extras, strict=True):
            links = more.get("alternates", ()) if isinstance(more, dict) else ()
            targets = tuple(self._name(one["href"]) for one in links if "hreflang" in one)
            if targets:
                self._count += len(targets)
                self._pages[self._name(url)] = notes.document, targets
                self._hosts.add(_host(url))
        self.is_full = self._count > MAX_ALTERNATES

    def _name(self, url: str) -> str:
        return self._names.setdefault(url, url)

    def findings(self, urls: _Urls) -> Iterator[Finding]:
        """Links that nobody returns, and those to pages of the same hosts that are not listed."""
        by_document: dict[str, Notes] = {}
        is_whole = not (self.is_full or urls.is_full)
        for page, (document, targets) in self._pages.items():
            for target in dict.fromkeys(targets):
                back = self._pages.get(target)
                sample = [Sample(page, target)]
                notes = by_document.setdefault(document, Notes(document))
                if back is not None and page in back[1]:
                    others = (one for one in targets if one not in back[1] and one in self._pages)
                    # Those that link there themselves have no return from there.
                    if any(target not in self._pages[one][1] for one in others):
                        notes.add("hreflang-sets-differ", sample)
                    continue
                # A listed page without alternates links nowhere.
                if back is not None or (is_whole and target in urls):
                    notes.add("hreflang-no-return", sample)
                elif is_whole and _host(target) in self._hosts:
                    notes.add("hreflang-target-unlisted", sample)
        for notes in by_document.values():
            yield from notes.findings()


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].lower()
