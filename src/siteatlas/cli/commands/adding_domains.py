"""What `siteatlas domains add` does: watches the sites that are named, or those of a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from siteatlas.cli.commands.site_files import SiteFile, UnusableLine, read_site_file
from siteatlas.cli.scanning.messages import shown_site
from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.database import opened, warn_without_worker
from siteatlas.cli.terminal.errors import report
from siteatlas.cli.terminal.output import print_message, write_json
from siteatlas.errors import TooManyTags
from siteatlas.insights.domains import DomainView, domain_view
from siteatlas.net.address import WebAddress
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.new_job import SubmittedJob
from siteatlas.queue.site_import import SITES_PER_STEP, ImportCounts, import_sites, without_repeats
from siteatlas.queue.submission import watch_site
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import get_session


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
    """Watch one site for `siteatlas domains add` and queue its scan, in one transaction."""
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
    """Print what became of the lines of a file, as text or JSON."""
    if as_json:
        errors = [_as_dict(line) for line in listed.unusable]
        write_json({"added": counts.added, "known": counts.known, "errors": errors})
        return
    for line in listed.unusable:
        report(line.error, about=f"{path}:{line.line}: {shown_site(line.site)}")
    print_message(_summary(counts, len(listed.unusable)))


async def _import(settings: Settings, listed: SiteFile) -> ImportCounts:
    """Watch the sites of a file in several transactions, and queue their scans."""
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
    """What `siteatlas domains add --file` did, in one line."""
    total = counted(counts.added + counts.known, "site")
    left_out = f" {counted(unusable, 'line')} could not be used." if unusable else ""
    return f"Watching {total}: {counts.added:,} new, {counts.known:,} known.{left_out}"


def _as_dict(line: UnusableLine) -> dict[str, object]:
    """A line that cannot be used, as `siteatlas domains add --json` prints it."""
    return {
        "line": line.line,
        "site": shown_site(line.site),
        "error_code": line.error.code,
        "error": line.error.message,
    }
