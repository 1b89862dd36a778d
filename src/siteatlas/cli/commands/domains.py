"""`siteatlas domains`: manage sites."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

import typer

from siteatlas.access.audit import record_command
from siteatlas.catalog.domains import (
    DomainView,
    ImportedSite,
    ListedDomain,
    change_domain,
    domain_view,
    find_creator,
    find_domain_view,
    find_site_headers,
    list_domains,
    lock_domain,
    set_site_headers,
)
from siteatlas.catalog.scans import changes_of_last_scan
from siteatlas.cli.scan.messages import shown_site
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import NO_WORKER, opened, warn_without_worker
from siteatlas.cli.terminal.errors import report, run
from siteatlas.cli.terminal.lines import counts_by_kind, plain_meaning
from siteatlas.cli.terminal.options import (
    MAX_LINE_CHARS,
    STDIN,
    JsonOption,
    SiteArgument,
    TagFilterOption,
    YesOption,
    require_confirmation,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    counted,
    print_message,
    write_details,
    write_json,
    write_line,
)
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    print_list,
    with_list_options,
)
from siteatlas.cli.terminal.tables import relative_time
from siteatlas.errors import (
    AddressError,
    InputError,
    SiteatlasError,
    TooManyTags,
)
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import OriginHeaders, read_header_lines
from siteatlas.queue import views
from siteatlas.queue.fence import ACTIVE_STATUSES, SubmittedJob
from siteatlas.queue.operator_actions import release_removals, remove_domain_and_jobs
from siteatlas.queue.submission import (
    SITES_PER_STEP,
    ImportCounts,
    import_sites,
    watch_site,
    without_repeats,
)
from siteatlas.settings import MAX_INTERVAL_HOURS, MAX_PAGES, MIN_INTERVAL_HOURS, Settings
from siteatlas.storage.models import LOCAL_USER_ID, JobStatus
from siteatlas.storage.session import AsyncSession, database_time, get_session
from siteatlas.text import parse_tags, site_in_line

Ago = Callable[[datetime], str]
URL_COLUMN, INTERVAL_COLUMN, TAGS_COLUMN = "url", "interval", "tags"
SEPARATORS = re.compile(r"[\s,;]+")
INTERVAL_WORDS = (
    f"The interval must be a number of hours from {MIN_INTERVAL_HOURS:g} to {MAX_INTERVAL_HOURS:g}."
)


@dataclass(frozen=True, slots=True)
class ListedSite:
    """A line of a list, as it was written."""

    line: int
    site: str
    interval: str = ""
    tags: str = ""


@dataclass(frozen=True, slots=True)
class UnusableLine:
    """A line that names no site that can be watched, and why."""

    line: int
    site: str
    error: SiteatlasError


@dataclass(slots=True)
class SiteFile:
    """The sites of a file, and the lines that cannot be used.

    `lines` are the first lines of the sites, by domain.
    """

    sites: list[ImportedSite] = field(default_factory=list)
    unusable: list[UnusableLine] = field(default_factory=list)
    lines: dict[str, ListedSite] = field(default_factory=dict)

    def refuse(self, domain: str, error: InputError) -> None:
        """Note that a site was not added."""
        listed = self.lines[domain]
        self.unusable.append(UnusableLine(listed.line, listed.site, error))


def read_site_file(
    path: Path, policy: EgressPolicy, interval_hours: float | None, tags: Sequence[str]
) -> SiteFile:
    """Read a list of sites; `interval_hours` is for lines without one, `tags` are for all."""
    found = SiteFile()
    with _opened(path) as file:
        for listed in _listed_sites(file):
            try:
                site = _imported(listed, policy, interval_hours, tags)
            except InputError as error:
                found.unusable.append(UnusableLine(listed.line, listed.site, error))
                continue
            found.sites.append(site)
            found.lines.setdefault(site.address.domain, listed)
    return found


def _opened(path: Path) -> nullcontext[TextIO] | TextIO:
    if str(path) == STDIN:
        return nullcontext(sys.stdin)
    try:
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error


def _listed_sites(file: TextIO) -> Iterator[ListedSite]:
    """The lines of a list that name a site; its first line decides whether it is CSV."""
    numbered = ((n, line) for n, line in enumerate(file, 1) if site_in_line(line))
    first = next(numbered, None)
    if first is None:
        return
    columns = [cell.strip().lower() for cell in first[1].split(",")]
    if URL_COLUMN in columns:
        yield from _csv_sites(file, columns, first[0])
        return
    for number, line in (first, *numbered):
        yield ListedSite(number, site_in_line(line) or "")


def _csv_sites(file: TextIO, columns: list[str], header: int) -> Iterator[ListedSite]:
    reader = csv.reader(file)
    try:
        for cells in reader:
            row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
            if any(row.values()):
                yield ListedSite(
                    header + reader.line_num,
                    row.get(URL_COLUMN, ""),
                    row.get(INTERVAL_COLUMN, ""),
                    row.get(TAGS_COLUMN, ""),
                )
    except csv.Error as error:
        raise InputError(f"Line {header + reader.line_num} is not valid CSV: {error}.") from error


def _imported(
    listed: ListedSite, policy: EgressPolicy, interval_hours: float | None, tags: Sequence[str]
) -> ImportedSite:
    """The site of a line; InputError if it cannot be watched."""
    address = parse_site(listed.site)
    policy.check(address)
    own = [word for word in SEPARATORS.split(listed.tags) if word]
    interval = _parse_interval(listed.interval) if listed.interval else interval_hours
    return ImportedSite(address, interval, tuple(parse_tags([*own, *tags])))


def _parse_interval(text: str) -> float:
    try:
        hours = float(text)
    except ValueError as error:
        raise InputError(INTERVAL_WORDS) from error
    if not MIN_INTERVAL_HOURS <= hours <= MAX_INTERVAL_HOURS:
        raise InputError(INTERVAL_WORDS)
    return hours


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How the sites that are added are watched."""

    interval_hours: float | None
    max_urls: int | None
    tags: list[str]


@dataclass(frozen=True, slots=True)
class AddedDomain:
    """A site that is watched from now on, and the job of its next scan."""

    domain: DomainView
    job: SubmittedJob
    interval_hours: float

    def line(self) -> str:
        """What `siteatlas domains` did with a site, in one line."""
        which = "its first scan" if self.domain.last_scan_at is None else "a scan"
        done = "was already queued" if self.job.deduplicated else "is queued"
        watching = f"Watching {self.domain.domain} every {self.interval_hours:g} h"
        return f"{watching}; {which} {done} as job {self.job.id}."


async def add_sites(
    settings: Settings, addresses: list[WebAddress], watching: WatchOptions, *, as_json: bool
) -> None:
    """Add each site in its own transaction, so that reported sites are really added."""
    added: list[AddedDomain] = []
    async with opened(settings):
        for address in addresses:
            added.append(await _add_one(settings, address, watching))
            if not as_json:
                print_message(added[-1].line())
        if as_json:
            items = [asdict(one.domain) | {"job_id": one.job.job_id} for one in added]
            write_json(items[0] if len(items) == 1 else {"items": items, "next_cursor": None})
        await warn_without_worker()


async def _add_one(settings: Settings, address: WebAddress, watching: WatchOptions) -> AddedDomain:
    async with get_session() as session, session.begin():
        domain, job = await watch_site(
            session,
            address,
            created_by=LOCAL_USER_ID,
            scan_interval_hours=watching.interval_hours,
            default_interval_hours=settings.scan_interval_hours,
            max_pages=watching.max_urls,
            max_attempts=settings.max_attempts,
            tags=watching.tags,
        )
        interval = domain.scan_interval_hours or settings.scan_interval_hours
        return AddedDomain(domain_view(domain), job, interval)


async def add_file(
    settings: Settings, path: Path, watching: WatchOptions, *, as_json: bool
) -> bool:
    """Watch the sites of a file; report the lines that cannot be used. Whether there were none."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    listed = read_site_file(path, policy, watching.interval_hours, watching.tags)
    async with opened(settings):
        counts = await _import(settings, listed)
        for domain in counts.over_tagged:
            listed.refuse(domain, TooManyTags())
        _write_import(path, counts, listed, as_json=as_json)
        await warn_without_worker()
    return not listed.unusable


def _write_import(path: Path, counts: ImportCounts, listed: SiteFile, *, as_json: bool) -> None:
    if as_json:
        errors = [_as_dict(line) for line in listed.unusable]
        write_json({"added": counts.added, "known": counts.known, "errors": errors})
        return
    for line in listed.unusable:
        report(line.error, about=f"{path}:{line.line}: {shown_site(line.site)}")
    print_message(_summary(counts, len(listed.unusable)))


async def _import(settings: Settings, listed: SiteFile) -> ImportCounts:
    sites, counts = without_repeats(listed.sites), ImportCounts()
    for first in range(0, len(sites), SITES_PER_STEP):
        async with get_session() as session, session.begin():
            step = await import_sites(
                session,
                sites[first : first + SITES_PER_STEP],
                created_by=LOCAL_USER_ID,
                default_interval_hours=settings.scan_interval_hours,
                max_attempts=settings.max_attempts,
            )
        counts = counts.plus(step)
    return counts


def _summary(counts: ImportCounts, unusable: int) -> str:
    total = counted(counts.added + counts.known, "site")
    left_out = f" {counted(unusable, 'line')} could not be used." if unusable else ""
    return f"Watching {total}: {counts.added:,} new, {counts.known:,} known.{left_out}"


def _as_dict(line: UnusableLine) -> dict[str, object]:
    return {
        "line": line.line,
        "site": shown_site(line.site),
        "error_code": line.error.code,
        "error": line.error.message,
    }


def _reason(codes: Sequence[str]) -> str:
    more = f" ({len(codes) - 1} more: siteatlas jobs show)" if len(codes) > 1 else ""
    return plain_meaning(codes[0]) + more if codes else ""


DOMAINS: TableLayout[ListedDomain] = TableLayout(
    columns=[
        Column("DOMAIN", value="domain"),
        Column(
            "WATCHED",
            from_width=WIDE,
            value=lambda d: "paused" if d.watched and d.paused else d.watched,
        ),
        Column("URLS", right=True, kind=ColumnKind.COUNT, value="url_count"),
        Column(
            "SITEMAPS", right=True, kind=ColumnKind.COUNT, from_width=WIDE, value="sitemap_count"
        ),
        Column("STATUS", kind=ColumnKind.STATUS, value="last_scan_status"),
        Column(
            "REASON",
            kind=ColumnKind.PROSE,
            value=lambda d: _reason([d.last_error_code] if d.last_error_code else d.reasons),
        ),
        Column("LAST SCAN", kind=ColumnKind.AGE, value="last_scan_at"),
        Column(
            "NEXT SCAN",
            kind=ColumnKind.AGE,
            value=lambda d: "paused" if d.watched and d.paused else d.next_scan_at,
        ),
    ],
    none="There are no sites yet. Add one: siteatlas domains add example.com",
    none_matches="No site matches.",
    record=ListedDomain,
)

app = typer.Typer(help="Manage sites.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def add(
    sites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SITE",
            help="A host such as example.com, or - to read a list of sites from stdin, one per "
            "line. Repeatable.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Add the sites in FILE: one per line, or CSV with the columns url, interval "
            "(hours) and tags.",
        ),
    ] = None,
    interval_hours: Annotated[
        float | None,
        typer.Option(
            min=MIN_INTERVAL_HOURS,
            max=MAX_INTERVAL_HOURS,
            help="Hours between scans; 0.016 is about one minute.",
        ),
    ] = None,
    max_urls: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PAGES, help="Maximum number of URLs stored per scan."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Tag to add to the sites. Repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch sites: scan each one now, then at regular intervals.

    Exit with 1 if a site cannot be added; the others are still added.
    """
    settings = prepare()
    watching = WatchOptions(interval_hours, max_urls, parse_tags(tag or []))
    if file is not None:
        _refuse_with_file(sites, max_urls)
        added = run(add_file(settings, file, watching, as_json=as_json))
        raise typer.Exit(0 if added else 1)
    typed = list(dict.fromkeys(_typed(sites or [])))
    addresses = _usable(typed, EgressPolicy.from_text(settings.egress_allow))
    if addresses:
        run(add_sites(settings, addresses, watching, as_json=as_json))
    raise typer.Exit(0 if len(addresses) == len(typed) else 1)


def _refuse_with_file(sites: list[str] | None, max_urls: int | None) -> None:
    if sites or max_urls is not None:
        raise InputError("--file cannot be combined with SITE or --max-urls.")


def _typed(sites: list[str]) -> Iterator[str]:
    """The sites given to `siteatlas domains add`; blank lines and comments on stdin are skipped."""
    for site in sites:
        if site != STDIN:
            yield site
            continue
        while line := sys.stdin.buffer.readline(MAX_LINE_CHARS):
            if named := site_in_line(line):
                yield named


def _usable(typed: list[str], policy: EgressPolicy) -> list[WebAddress]:
    """The addresses that can be scanned; others are reported, or raised if only one was given."""
    if not typed:
        raise InputError("No site given. Name hosts such as example.com, or pass a list on stdin.")
    usable: list[WebAddress] = []
    for text in typed:
        try:
            address = parse_site(text)
            policy.check(address)
        except AddressError as error:
            if len(typed) == 1:
                raise
            report(error, about=shown_site(text))
        else:
            usable.append(address)
    return usable


@app.command("list")
@with_list_options
def list_(
    *,
    watched: Annotated[
        bool | None,
        typer.Option("--watched/--unwatched", help="Only watched sites, or only unwatched ones."),
    ] = None,
    tag: TagFilterOption = None,
    request: ListRequest,
) -> None:
    """List the stored sites, sorted by name."""
    read = partial(list_domains, watched=watched, tag=tag)
    run(print_list(prepare(), request, DOMAINS.filtered_by(watched, tag), read))


@app.command()
def show(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Show what is stored about SITE, what its last scan changed and which removals are held."""
    domain, changed, creator = run(_find(prepare(), site))
    _write(domain, changed, creator, as_json=as_json)


@app.command()
def explain(site: SiteArgument) -> None:
    """Say in one sentence when SITE is scanned next, or why it is not."""
    write_line(run(_explain(prepare(), site)))


@app.command()
def tag(
    site: SiteArgument,
    tags: Annotated[
        list[str] | None,
        typer.Argument(metavar="TAG", help="All tags of the site; none removes them."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set the tags of SITE."""
    domain = run(_change(prepare(), site, tags=parse_tags(tags or [])))
    shown = ", ".join(domain.tags) or "none"
    _write_changed(domain, f"Tags of {domain.domain}: {shown}.", as_json=as_json)


@app.command("set")
def set_(
    site: SiteArgument,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: VALUE'",
            help="Header that scans of the site send, or @FILE with one per line; @- for stdin, "
            "which hides it from the list of processes. '' removes all. Repeatable.",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(help="The only origin that gets them.  [default: where the site was found]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set the request headers of SITE, in place of those that are set; without any, show them.

    Only scans of the service send them. Everyone with the scope read sees what they open, and
    everyone with the scope scan can have them sent.
    """
    lines = None if header is None else [line for one in header for line in _header_lines(one)]
    found = run(_set_headers(prepare(), site, lines, origin))
    if as_json:
        write_json(found and {"origin": found.origin, "names": found.names})
    else:
        sent = f"to {found.origin}: {', '.join(found.names)}" if found else "no headers"
        print_message(f"Scans of the site send {sent}.")


def _header_lines(text: str) -> list[str]:
    if not text.startswith("@"):
        return [text] if text else []
    with _opened(Path(text[1:])) as file:
        return [line for line in file.read().splitlines() if line.strip()]


@app.command()
def pause(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Pause scheduled scans of SITE."""
    domain = run(_change(prepare(), site, paused=True))
    _write_changed(domain, f"Paused {domain.domain}.", as_json=as_json)


@app.command()
def resume(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Resume scheduled scans of SITE."""
    domain = run(_change(prepare(), site, paused=False))
    due = domain.next_scan_at
    when = f"; next scan: {relative_time(due, datetime.now(UTC))}" if due else ""
    _write_changed(domain, f"Resumed {domain.domain}{when}.", as_json=as_json)


@app.command()
def release(site: SiteArgument, as_json: JsonOption = False) -> None:
    """Queue a scan of SITE that removes its missing URLs."""
    domain, job = run(_release(prepare(), site))
    queued = "was already queued" if job.deduplicated else "is queued"
    line = f"Released the removals of {domain.domain}; the scan {queued} as job {job.id}."
    _write_changed(domain, line, as_json=as_json)


@app.command()
def remove(
    site: SiteArgument,
    yes: YesOption = False,
) -> None:
    """Remove SITE and everything stored about it."""
    settings = prepare()
    require_confirmation(
        f"Remove {site} with its sitemaps, URLs and history?",
        "Removing a site also removes its history.",
        yes=yes,
    )
    print_message(f"Removed {run(_remove(settings, site))}.")


def _write(
    domain: DomainView, changed: dict[str, int] | None, creator: str | None, *, as_json: bool
) -> None:
    shown = asdict(domain) | {"last_scan_changes": changed}
    if as_json:
        write_json(shown)
    else:
        texts = {
            "last_scan_changes": counts_by_kind(changed),
            "created_by": creator or domain.created_by,
        }
        write_details((shown | texts).items())
    if domain.removals_held_since is not None and not as_json:
        print_message(
            f"{counted(domain.missing_count, 'URL')} missing from the sitemaps, but not proved to "
            "be removed."
        )


def _write_changed(domain: DomainView, line: str, *, as_json: bool) -> None:
    """Report a site that `siteatlas domains` paused or resumed: a line, or the site as JSON."""
    if as_json:
        write_json(domain)
    else:
        print_message(line)


async def _find(
    settings: Settings, site: str
) -> tuple[DomainView, dict[str, int] | None, str | None]:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        changed = await changes_of_last_scan(session, domain.id)
        return domain, changed, await find_creator(session, domain)


async def _explain(settings: Settings, site: str) -> str:
    async with opened(settings), get_session() as session, session.begin():
        domain = await find_domain_view(session, site)
        wanted = min(max(1, domain.failures_in_a_row), 100)
        jobs = (await views.list_jobs(session, domain=site, limit=1)).items
        failed = JobStatus.FAILED
        failures = (await views.list_jobs(session, status=failed, domain=site, limit=wanted)).items
        ago = partial(relative_time, now=await database_time(session))
        missing = "" if await views.any_worker_alive(session) else NO_WORKER
        if jobs and jobs[0].status in ACTIVE_STATUSES:
            state = await _state_of_job(session, jobs[0], ago)
        else:
            state = _state_of_site(domain, failures, ago)
    return f"{domain.domain} {state}. {missing if domain.watched or jobs else ''}".rstrip()


async def _state_of_job(session: AsyncSession, job: views.JobView, ago: Ago) -> str:
    if job.status == JobStatus.PROCESSING:
        return f"is being scanned: job {job.id} began {ago(job.started_at or job.created_at)}"
    if (when := ago(job.run_at)).startswith("in "):
        last = next(iter(await views.list_attempts(session, job.id)), None)
        why = f": its last attempt was {last.outcome} ({last.error_code})" if last else ""
        return f"waits as job {job.id}, to run {when}{why}"
    ahead = await views.count_jobs_ahead(session, job)
    return f"waits as job {job.id} for a free slot, behind {counted(ahead, 'job')}"


def _state_of_site(domain: DomainView, failures: Sequence[views.JobView], ago: Ago) -> str:
    """Why a site without an active job is not being scanned."""
    last = "never scanned" if domain.last_scan_at is None else f"scanned {ago(domain.last_scan_at)}"
    if not domain.watched or domain.next_scan_at is None:
        return f"is not watched ({last}); watch it: siteatlas domains add {domain.domain}"
    if domain.paused:
        return f"is paused ({last}); resume it: siteatlas domains resume {domain.domain}"
    due = ago(domain.next_scan_at).replace("ago", "ago and not queued yet")
    following = f"the next scan is due {due}"
    if (code := domain.last_error_code) is None:
        return f"was {last}; {following}"
    times, ends = counted(domain.failures_in_a_row, "time"), [job.finished_at for job in failures]
    since = ends[-1] if len(ends) == domain.failures_in_a_row else None
    began = f", first {ago(since)}" if since else ""
    return f"failed {times}{began}: {code}, {plain_meaning(code).rstrip('.')}; {following}"


async def _change(
    settings: Settings, site: str, *, paused: bool | None = None, tags: list[str] | None = None
) -> DomainView:
    async with opened(settings), get_session() as session, session.begin():
        domain = await lock_domain(session, site)
        await change_domain(session, domain, paused=paused, tags=tags)
        return domain_view(domain)


async def _set_headers(
    settings: Settings, site: str, lines: list[str] | None, origin: str | None
) -> OriginHeaders | None:
    address = parse_site(site)
    async with opened(settings), get_session() as session, session.begin():
        domain = await lock_domain(session, site)
        if lines is None:
            return await find_site_headers(session, domain.id)
        await record_command(session, "domains set", domain.domain)
        usual = address.origin if address.scheme_given else domain.origin or address.origin
        given = OriginHeaders(origin or usual, read_header_lines(lines))
        return await set_site_headers(session, domain, given, LOCAL_USER_ID)


async def _release(settings: Settings, site: str) -> tuple[DomainView, SubmittedJob]:
    async with opened(settings), get_session() as session, session.begin():
        domain, job = await release_removals(
            session,
            parse_site(site).domain,
            created_by=LOCAL_USER_ID,
            max_attempts=settings.max_attempts,
        )
        return domain_view(domain), job


async def _remove(settings: Settings, site: str) -> str:
    """Remove a site with its jobs for `siteatlas domains remove`; returns its domain."""
    name = parse_site(site).domain
    async with opened(settings), get_session() as session, session.begin():
        await remove_domain_and_jobs(session, name)
    return name
