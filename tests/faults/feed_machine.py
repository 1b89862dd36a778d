"""A site that changes, fails and recovers in any order, while its scans are killed and cancelled.

After each publication a copy of the listing from any earlier position, kept by events alone, must
equal what is stored; a removal must be true; and once the site is quiet, the listing is the site.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from siteatlas.storage.models import Job
from tests.catalog.database.runs import (
    cancel_dead,
    finish,
    last_job,
    scan,
    start_and_crash,
    stop_midway,
)
from tests.fixtures.changing_site import ChangingSite, Fault
from tests.fixtures.feed import ARRIVALS, FeedClient, Json, Listing, Mirror
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.queue import job_of

T = TypeVar("T")
# The pages of each document that can be read.
Reading = dict[str, set[str]]

INDEX = "/index.xml"
DOCUMENTS = ("/a.xml", "/b.xml", "/c.xml")
BULK = {path: [f"{path[:2]}/bulk{n:02d}" for n in range(15)] for path in DOCUMENTS}
PAGES = tuple(f"/page{n}" for n in range(3))
DATES = ("2026-11-01", "2026-11-02", "2026-11-03")
LAST_MIRRORS = 6
CONFIRMED = 61

document = st.sampled_from(DOCUMENTS)
page = st.sampled_from(PAGES)


class FeedMachine(RuleBasedStateMachine):
    """Runs against the bound database with an event loop of its own; each example is a new site."""

    runner: asyncio.Runner
    http: httpx.AsyncClient
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.site = ChangingSite()
        self._do(self.site.start())
        self.feed = FeedClient(self.http, self.site.host_port, limit=200)
        self.mirrors: list[Mirror] = []
        self.published = Mirror(0)
        self.open_job: int | None = None
        self.versions: list[Reading] = []

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        """However it went, a quiet site is listed as it is."""
        try:
            if self.mirrors:
                self.quiet_time()
        finally:
            self._do(self.site.stop())

    @initialize()
    def begin(self) -> None:
        """Three documents, each with pages of its own."""
        self.site.add(INDEX, children=list(DOCUMENTS))
        for path in DOCUMENTS:
            self.site.add(path, BULK[path])
        self.scan()

    @rule(path=document, page=page, date=st.sampled_from(DATES), then_scan=st.booleans())
    def list_page(self, path: str, page: str, date: str, then_scan: bool) -> None:
        """A page is new there, or has another date."""
        self.site[path].put(page, date=date)
        self._scan_if(then_scan)

    @rule(page=page, then_scan=st.booleans())
    def drop_page(self, page: str, then_scan: bool) -> None:
        """The first document that lists a page lists it no more."""
        for path in self._listing(page)[:1]:
            self.site[path].drop(page)
        self._scan_if(then_scan)

    @rule(into=document, page=page, then_scan=st.booleans())
    def move_page(self, into: str, page: str, then_scan: bool) -> None:
        """A page moves from the first document that lists it."""
        for path in self._listing(page)[:1]:
            self.site[into].put(page, date=self.site[path].entries.pop(page))
        self._scan_if(then_scan)

    def _listing(self, page: str) -> list[str]:
        """The documents that list a page."""
        return [path for path in DOCUMENTS if page in self.site[path].entries]

    def _scan_if(self, wanted: bool) -> None:
        """Most examples would be changes that no scan sees otherwise."""
        if wanted:
            self.scan()

    @rule(path=document, kept=st.sampled_from([0, 1, 15]))
    def keep_only(self, path: str, kept: int) -> None:
        """Most pages of a document leave or return at once."""
        self.site[path].entries = {}
        self.site[path].put(*BULK[path][:kept])

    @rule(path=document, fault=st.sampled_from([None, None, None, *Fault]))
    def answer_with(self, path: str, fault: Fault | None) -> None:
        self.site[path].fault = fault

    @rule(fault=st.sampled_from([None, None, Fault.SERVER_ERROR, Fault.NOT_FOUND]))
    def answer_for_the_index_with(self, fault: Fault | None) -> None:
        self.site[INDEX].fault = fault

    @rule(path=document)
    def toggle_child(self, path: str) -> None:
        """The index names a document, or names it no more."""
        children = self.site[INDEX].children or []
        kept = [child for child in children if child != path]
        self.site[INDEX].children = kept if path in children else [*kept, path]

    @precondition(lambda machine: machine.open_job is None)
    @rule(minutes=st.sampled_from([30, CONFIRMED]))
    def time_passes(self, minutes: int) -> None:
        self._do(let_minutes_pass(minutes))

    @rule()
    def scan(self) -> None:
        """A scan is run to its end; one that was interrupted goes on."""
        self.versions.append(self._readable())
        if self.open_job is None:
            job = self._do(scan(self.site))
        else:
            job = self._do(finish(self.site, self.open_job))
        self._ended(job)

    @precondition(lambda machine: machine.open_job is None)
    @rule(commit=st.integers(1, 5), after=st.booleans())
    def die(self, commit: int, after: bool) -> None:
        """A scan is begun, and its worker dies at a COMMIT."""
        self.versions.append(self._readable())
        job_id, crashed = self._do(start_and_crash(self.site, commit=commit, after=after))
        self.seen["died"] += crashed
        self._interrupted(self._do(job_of(job_id)))

    @precondition(lambda machine: machine.open_job is None)
    @rule(path=document)
    def stop(self, path: str) -> None:
        """A scan is stopped while it waits for a document; the rows of the others are written."""
        self.versions.append(self._readable())
        job_id = self._do(stop_midway(self.site, path))
        self.seen["stopped"] += job_id is not None
        self._interrupted(self._do(last_job() if job_id is None else job_of(job_id)))

    @precondition(lambda machine: machine.open_job is not None)
    @rule()
    def cancel(self) -> None:
        """An interrupted scan is cancelled; what it wrote is published by the next one."""
        assert self.open_job is not None
        self._do(cancel_dead(self.site, self.open_job))
        self.seen["cancelled"] += 1
        self.open_job = None

    def _interrupted(self, job: Job) -> None:
        if job.status != "processing":
            self._ended(job)
            return
        self.open_job = job.id
        self.mirrors.append(self._do(Mirror.of(self.feed)))

    def _ended(self, job: Job) -> None:
        """What is published must be right; what is not is published later."""
        self.seen[job.status] += 1
        self.open_job = None
        if job.status == "completed":
            self._do(self._check_feed())
            self.versions = []

    def quiet_time(self) -> None:
        """Nothing is wrong any more, and time enough passes: the listing is the site."""
        self.site.set_fault(None)
        for _ in range(4):
            self.scan()
            self.time_passes(CONFIRMED)
        listed = self._do(self.feed.pages_by_document())
        children = self.site[INDEX].children or []
        assert listed == {(path, p) for path in children for p in self.site[path].entries}

    def _readable(self) -> Reading:
        """What a scan can read completely as the site is now."""
        index = self.site[INDEX]
        children = [] if index.fault else index.children or []
        good = [path for path in children if self.site[path].fault is None]
        return {path: set(self.site[path].entries) for path in good}

    async def _check_feed(self) -> None:
        events = await self.feed.events()
        now = await Mirror.of(self.feed)
        for mirror in [*self.mirrors[:1], *self.mirrors[-LAST_MIRRORS:]]:
            replayed = await mirror.replay(events, self.feed.document)
            assert replayed == now.entries, f"replayed from {mirror.as_of}"
        new = [event for event in events if event["seq"] > self.published.as_of]
        self.seen.update(event["kind"] for event in new)
        self._check_removals(new)
        if self.mirrors:
            check_kinds(new, self.published.entries, now.entries)
        self.mirrors.append(now)
        self.published = now

    def _check_removals(self, new: list[Json]) -> None:
        """Nothing is called removed that was there whenever it was looked for."""
        for event in new:
            path, url = ((event[n] or "").removeprefix(self.site.base) for n in ("sitemap", "url"))
            if event["kind"] in {"removed", "duplicate_removed"}:
                always = all(url in reading.get(path, ()) for reading in self.versions)
                assert not always, f"{url} was in {path} all the time"
            if event["kind"] == "removed":
                listed = (any(url in p for p in reading.values()) for reading in self.versions)
                assert not all(listed), f"{url} was listed all the time"


def check_kinds(new: list[Json], before: Listing, after: Listing) -> None:
    """The kind of each event fits the documents that listed the URL before and list it after."""
    had, has = documents_by_url(before), documents_by_url(after)
    first = Counter(event["url"] for event in new if event["kind"] in {"added", "back"})
    removed = {event["url"] for event in new if event["kind"] == "removed"}
    for event in new:
        kind, url = event["kind"], event["url"]
        if kind == "removed":
            assert not has[url], f"{url} is called removed and is listed"
        if kind == "duplicate_removed":
            assert has[url] or url in removed, f"{url} is called a duplicate and is listed nowhere"
        if kind in {"added", "back"}:
            assert not had[url], f"{url} is called {kind} and was listed"
            assert first[url] == 1, f"{url} is called new more than once"
        if kind == "moved":
            assert event["previous_sitemap_id"] in had[url] - has[url]
        if kind in ARRIVALS - {"moved"}:
            assert event["sitemap_id"] in has[url]


def documents_by_url(listing: Listing) -> dict[str, set[str]]:
    """The documents that list each URL."""
    found: dict[str, set[str]] = defaultdict(set)
    for sitemap_id, url in listing:
        found[url].add(sitemap_id)
    return found
