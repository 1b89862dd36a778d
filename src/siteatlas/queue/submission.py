"""Creates jobs: one active job per site, however often it is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Row,
    Select,
    SmallInteger,
    Text,
    Uuid,
    any_,
    bindparam,
    case,
    func,
    null,
    select,
    text,
    true,
    update,
)
from sqlalchemy import (
    insert as core_insert,
)
from sqlalchemy.dialects.postgresql import JSONB, Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import (
    DEFAULT_INTERVAL_HOURS,
    ImportedSite,
    register_domain,
    register_domains,
    registration,
    registration_values,
    watch_domains,
)
from siteatlas.errors import ConflictError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    NewJob,
    Priority,
    SubmittedJob,
    is_pending,
    queue_literal,
)
from siteatlas.scanner.discovery.home_page import names_document
from siteatlas.scanner.options import ChildFilter
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import (
    SITEMAP_JOB,
    SYSTEM_USER_ID,
    Batch,
    BatchItem,
    Domain,
    Job,
    JobStatus,
)
from siteatlas.storage.models.jobs import ACTIVE_CONDITION as ACTIVE_PREDICATE
from siteatlas.storage.schema import JOB_REQUESTS, JOBS
from siteatlas.storage.session import Reader

# How many documents may be added to one job.
MAX_DOCUMENTS = 100

_find_active = (
    select(Job)
    .where(
        Job.dedup_key == bindparam("site"),
        Job.job_type == SITEMAP_JOB,
        Job.status.in_(ACTIVE_STATUSES),
    )
    .execution_options(populate_existing=True)
)
_find_all_active = (
    select(Job)
    .where(
        Job.dedup_key == any_(bindparam("sites", type_=ARRAY(Text()))),
        Job.job_type == SITEMAP_JOB,
        Job.status.in_(ACTIVE_STATUSES),
    )
    .execution_options(populate_existing=True)
)


def _added_documents() -> Any:
    return func.coalesce(Job.job_metadata["documents"], func.jsonb_build_array(), type_=JSONB())


def _widen_statement() -> Any:
    """Make a job satisfy one more submission, in one statement: many may join at once.

    No limit counts as the highest limit; the whole site includes any single document and whatever
    a filter chooses. A running job is changed only if it reads less than is requested: it returns
    to the queue at the end of its attempt. Returns no row if there is nothing to change.
    """
    is_pending = Job.status == JobStatus.PENDING
    may_widen = bindparam("may_widen_running", type_=Boolean()) & (
        Job.status == JobStatus.PROCESSING
    )
    limit = Job.result_data["max_pages"].astext.cast(BigInteger)
    requested_limit = bindparam("requested_limit", type_=BigInteger())
    wider = limit.is_not(None) & (requested_limit.is_(None) | (requested_limit > limit))
    requested_document = bindparam("requested_document", type_=Text())
    whole = Job.job_metadata["document"].astext.is_not(None) & requested_document.is_(None)
    unfiltered = requested_document.is_(None) & _has_other_filter()
    requested_priority = bindparam("requested_priority", type_=SmallInteger())
    base_url = bindparam("requested_base_url", type_=Text())
    no_document = func.jsonb_build_object(
        "document",
        null(),
        "base_url",
        base_url,
        # The document of the job is read with the site, along with those added since.
        "documents",
        _added_documents().op("||")(func.jsonb_build_array(Job.job_metadata["document"])),
    )
    no_filter = func.jsonb_build_object("child_filter", null())
    new_limit = func.jsonb_build_object("max_pages", requested_limit)
    return (
        update(Job)
        .where(Job.id == bindparam("of_job"))
        .where(
            (is_pending & (wider | whole | unfiltered | (requested_priority < Job.priority)))
            | (may_widen & (whole | unfiltered))
        )
        .values(
            result_data=case((wider, Job.result_data.op("||")(new_limit)), else_=Job.result_data),
            job_metadata=_merged(whole, no_document, _merged(unfiltered, no_filter)),
            progress=case((is_pending & (whole | unfiltered), 0.0), else_=Job.progress),
            priority=func.least(Job.priority, requested_priority),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _has_other_filter() -> Any:
    requested_filter = bindparam("requested_filter", type_=JSONB(none_as_null=True))
    child_filter = Job.job_metadata["child_filter"]
    return child_filter.astext.is_not(None) & child_filter.is_distinct_from(requested_filter)


def _merged(condition: Any, changes: Any, metadata: Any = Job.job_metadata) -> Any:
    return case((condition, metadata.op("||")(changes)), else_=metadata)


_widen = _widen_statement()


def _add_document_statement() -> Any:
    """Add a document to a job, once. Returns no row if the job has ended."""
    metadata = func.coalesce(Job.job_metadata, func.jsonb_build_object())
    before = _added_documents()
    added = func.jsonb_build_array(bindparam("added", type_=Text()), type_=JSONB())
    unchanged = before.contains(added) | (func.jsonb_array_length(before) >= MAX_DOCUMENTS)
    documents = case((unchanged, before), else_=before.op("||")(added))
    return (
        update(Job)
        .where(Job.id == bindparam("of_job"), Job.status.in_(ACTIVE_STATUSES))
        .values(job_metadata=metadata.op("||")(func.jsonb_build_object("documents", documents)))
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


_add_document = _add_document_statement()


def _request_statement() -> Any:
    """Note that a user wants jobs of others. Returns those of them that have not ended."""
    active = (
        select(Job.id, bindparam("joined_by", type_=Uuid()))
        .where(
            Job.id == any_(bindparam("joined_jobs", type_=ARRAY(BigInteger()))),
            Job.status.in_(ACTIVE_STATUSES),
        )
        .order_by(Job.id)
        # A cancellation that is under way ends first.
        .with_for_update(read=True, key_share=True)
    )
    new = insert(JOB_REQUESTS).from_select(["job_id", "user_id"], active)
    known = {"user_id": new.excluded.user_id}
    again = new.on_conflict_do_update(constraint=JOB_REQUESTS.primary_key, set_=known)
    return again.returning(JOB_REQUESTS.c.job_id)


_request = _request_statement()


def joined_documents() -> Any:
    """The lists of documents in submissions that joined recent jobs of `of_domain`."""
    jobs = JOBS.alias("newest_jobs")
    newest = (
        select(jobs.c.job_metadata["documents"].label("documents"))
        .where(jobs.c.domain_id == bindparam("of_domain"), jobs.c.job_type == SITEMAP_JOB)
        .order_by(jobs.c.id.desc())
        .limit(100)
        .subquery("newest")
    )
    lists = select(func.jsonb_agg(newest.c.documents, type_=JSONB()))
    return lists.where(newest.c.documents.is_not(None)).scalar_subquery()


async def find_sufficient_jobs(session: AsyncSession, requests: Sequence[NewJob]) -> dict[str, Job]:
    """The active jobs, by site, that already satisfy the request.

    One statement for any number of sites. The others are updated one by one.
    """
    by_site = {new.domain: new for new in requests if _named_document(new) is None}
    found = await session.scalars(_find_all_active, {"sites": list(by_site)})
    jobs = {job.dedup_key: job for job in found if job.dedup_key is not None}
    sufficient = {site: job for site, job in jobs.items() if _satisfies(job, by_site[site])}
    for user in {new.created_by for new in by_site.values()}:
        wanted = [job for site, job in sufficient.items() if by_site[site].created_by == user]
        ended = await _request_jobs(session, wanted, user)
        sufficient = {site: job for site, job in sufficient.items() if job.id not in ended}
    return sufficient


async def _request_jobs(session: AsyncSession, jobs: Iterable[Job], user: UUID) -> set[int]:
    """Note that a user wants these jobs; return those that have been cancelled meanwhile.

    The schedule wants nothing for itself: a job that it joins still belongs to its users alone.
    """
    joined = {job.id for job in jobs if user not in {job.created_by, SYSTEM_USER_ID}}
    if not joined:
        return joined
    values = {"joined_jobs": list(joined), "joined_by": user}
    return joined - set((await session.scalars(_request, values)).all())


def _satisfies(job: Job, new: NewJob) -> bool:
    """Whether `_widen` would leave the job as it is."""
    if job.status != JobStatus.PENDING:
        return not _must_widen_running(job, new)
    limit = (job.result_data or {}).get("max_pages")
    narrower = limit is not None and (new.max_pages is None or new.max_pages > limit)
    return not narrower and not _reads_less(job, new) and new.priority >= job.priority


def _must_widen_running(job: Job, new: NewJob) -> bool:
    """Whether a running job reads less than a user requests; a scheduled scan can wait for it."""
    return new.priority < Priority.SCHEDULED and _reads_less(job, new)


def _reads_less(job: Job, new: NewJob) -> bool:
    if new.document is not None:
        return False
    metadata = job.job_metadata or {}
    child_filter = metadata.get("child_filter")
    is_filtered_otherwise = child_filter is not None and child_filter != new.stored_filter
    return metadata.get("document") is not None or is_filtered_otherwise


async def join(session: AsyncSession, new: NewJob) -> Job | None:
    """Join the active job of the site and add the document that the submission names."""
    job = await _join_and_widen(session, new)
    if job is not None and await _request_jobs(session, [job], new.created_by):
        return None
    document = _named_document(new)
    if job is None or document is None or _reads_only_document(job, document):
        return job
    params = {"of_job": job.id, "added": document}
    return (await session.scalars(_add_document, params)).one_or_none()


def _named_document(new: NewJob) -> str | None:
    if new.document is not None:
        return new.document
    address = parse_site(new.base_url)
    if not names_document(address.path):
        return None
    return address.url if address.scheme_given else address.path


def _reads_only_document(job: Job, document: str) -> bool:
    return (job.job_metadata or {}).get("document") == document


async def _join_and_widen(session: AsyncSession, new: NewJob) -> Job | None:
    """The active job of the site; while it is pending, it is extended to the wider of the requests.

    So is a running one that reads less than its site, unless the request is a scheduled scan.
    """
    job = await _active(session, new.domain)
    if job is None or (job.status != JobStatus.PENDING and not _must_widen_running(job, new)):
        return job
    requested = {
        "of_job": job.id,
        "requested_limit": new.max_pages,
        "requested_priority": int(new.priority),
        "requested_document": new.document,
        "requested_filter": new.stored_filter,
        "requested_base_url": new.base_url,
        "may_widen_running": new.priority < Priority.SCHEDULED,
    }
    widened = (await session.execute(_widen, requested)).scalar_one_or_none()
    return widened or await _active(session, new.domain)


async def _active(session: AsyncSession, site: str) -> Job | None:
    return (await session.scalars(_find_active, {"site": site})).one_or_none()


def _unless_active(statement: Insert) -> Insert:
    return statement.on_conflict_do_nothing(
        index_elements=[Job.dedup_key], index_where=text(ACTIVE_PREDICATE)
    )


def _registration_and_job(*, watch: bool, scheme_given: bool) -> Select[Any]:
    upsert = registration(watch=watch, scheme_given=scheme_given)
    site = upsert.returning(Domain.id, Domain.address).cte("site")
    row: dict[str, ColumnElement[Any]] = {
        name: bindparam(f"job_{name}", type_=JOBS.c[name].type)
        # The columns that `NewJob.columns` returns when no id is given.
        for name in (
            "domain_id",
            "created_by",
            "dedup_key",
            "site",
            "priority",
            "max_attempts",
            "result_data",
            "job_metadata",
        )
    }
    row |= {"domain_id": site.c.id, "address": site.c.address}
    new = _unless_active(insert(Job).from_select(list(row), select(*row.values())))
    job = new.returning(Job.id, Job.job_id, Job.status, Job.created_at, Job.result_data).cte("job")
    return select(site.c.id.label("domain_id"), job).select_from(site.outerjoin(job, true()))


_insert_unless_active = _unless_active(insert(Job)).returning(Job)
_register_and_insert = {
    (watch, scheme_given): _registration_and_job(watch=watch, scheme_given=scheme_given)
    for watch, scheme_given in product((False, True), repeat=2)
}


@dataclass(frozen=True, slots=True)
class SiteSubmission:
    """One statement that registers a site and queues its job unless the site has an active one."""

    new_job: NewJob
    statement: Select[Any]
    values: dict[str, Any]

    def queued(self, row: Row[Any]) -> SubmittedJob | None:
        """The job that the statement queued; None if an active one has to be joined."""
        return None if row.id is None else SubmittedJob.from_row(row, deduplicated=False)


async def submit_site(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    watch: bool = False,
    interval_hours: float = DEFAULT_INTERVAL_HOURS,
    priority: Priority = Priority.INTERACTIVE,
    document: str | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    child_filter: ChildFilter | None = None,
) -> SubmittedJob:
    """Register the site of an address and queue a scan of it, or join the active one.

    With `watch`, the site is scanned again one interval from now at the latest, its own or
    `interval_hours`. Otherwise the time of its next scan stays until the scan is published.
    """
    submission = build_submission(
        address,
        created_by=created_by,
        max_pages=max_pages,
        watch=watch,
        interval_hours=interval_hours,
        priority=priority,
        document=document,
        max_attempts=max_attempts,
        child_filter=child_filter,
    )
    row = (await session.execute(submission.statement, submission.values)).one()
    return submission.queued(row) or await join_active_job(session, submission, row.domain_id)


def build_submission(
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    watch: bool = False,
    interval_hours: float = DEFAULT_INTERVAL_HOURS,
    priority: Priority = Priority.INTERACTIVE,
    document: str | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    child_filter: ChildFilter | None = None,
) -> SiteSubmission:
    """The statement that `submit_site` executes, for callers that run it in autocommit mode."""
    new_job = NewJob(
        domain=address.domain,
        base_url=scan_address(address),
        created_by=created_by,
        max_pages=max_pages,
        document=document,
        priority=priority,
        max_attempts=max_attempts,
        child_filter=child_filter,
    )
    # The address of a document does not determine where scans of the site start.
    scheme_given = address.scheme_given and document is None
    statement = _register_and_insert[watch, scheme_given]
    domain_values = registration_values(
        address, created_by=created_by, default_interval_hours=interval_hours
    )
    return SiteSubmission(new_job, statement, domain_values | _job_values(new_job))


def _job_values(new_job: NewJob) -> dict[str, Any]:
    return {f"job_{name}": value for name, value in new_job.columns().items()}


async def join_active_job(
    session: AsyncSession, submission: SiteSubmission, domain_id: UUID
) -> SubmittedJob:
    """Join the active job that prevented the insert, or insert a new job if it has ended."""
    return await _join_or_insert(session, replace(submission.new_job, domain_id=domain_id))


async def watch_site(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    max_pages: int | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    tags: Sequence[str] = (),
) -> tuple[Domain, SubmittedJob]:
    """Watch a site from now on and queue a first scan. Return the domain and the job."""
    domain = await register_domain(
        session,
        address,
        created_by=created_by,
        watch=True,
        max_pages=max_pages,
        scan_interval_hours=scan_interval_hours,
        default_interval_hours=default_interval_hours,
        tags=tags,
    )
    new = NewJob(
        domain=domain.domain,
        base_url=scan_address(address),
        created_by=created_by,
        domain_id=domain.id,
        max_pages=domain.max_pages,
        max_attempts=max_attempts,
    )
    return domain, await create(session, new)


def scan_address(address: WebAddress) -> str:
    """The address passed to the scan: without a scheme if none was given."""
    return address.url if address.scheme_given else address.url.split("://", 1)[1]


async def create(session: AsyncSession, new: NewJob) -> SubmittedJob:
    """Insert a pending job, or join the active one of the same site."""
    for inserted in await _insert(session, [new]):
        return SubmittedJob.from_row(inserted, deduplicated=False)
    return await _join_or_insert(session, new)


async def _join_or_insert(session: AsyncSession, new: NewJob) -> SubmittedJob:
    for _ in range(5):
        job = await join(session, new)
        if job is not None:
            return _joined(job)
        for inserted in await _insert(session, [new]):
            return SubmittedJob.from_row(inserted, deduplicated=False)
    raise ConflictError("The active job of this site ended while it was being joined. Try again.")


def _joined(job: Job) -> SubmittedJob:
    return replace(
        SubmittedJob.from_row(job, deduplicated=True),
        document=(job.job_metadata or {}).get("document"),
        is_scheduled=job.created_by == SYSTEM_USER_ID,
    )


async def create_many(session: AsyncSession, jobs: Sequence[NewJob]) -> dict[str, SubmittedJob]:
    """Insert many jobs at once and join the active ones. Return the submitted jobs by site."""
    inserted = await _insert(session, jobs)
    submitted = {job.dedup_key: SubmittedJob.from_row(job, deduplicated=False) for job in inserted}
    others = [new for new in jobs if new.domain not in submitted]
    active = await find_sufficient_jobs(session, others) if others else {}
    submitted |= {site: _joined(job) for site, job in active.items()}
    for new in others:
        if new.domain not in submitted:
            submitted[new.domain] = await _join_or_insert(session, new)
    return {site: job for site, job in submitted.items() if site is not None}


async def _insert(session: AsyncSession, jobs: Sequence[NewJob]) -> Sequence[Job]:
    sites = {new.domain_id for new in jobs}
    known = select(Domain.id, Domain.address).where(Domain.id.in_(sites))
    addresses = {row.id: row.address for row in await session.execute(known)}
    rows = [new.columns() | {"address": addresses.get(new.domain_id)} for new in jobs]
    return (await session.scalars(_insert_unless_active, rows)).all()


# Sites of one transaction: locks are held briefly, and others get their turn in between.
SITES_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """How many sites of a list were new, and how many were known.

    `over_tagged` are the domains of those that were left as they are, because they would have more
    tags than allowed.
    """

    added: int = 0
    known: int = 0
    over_tagged: tuple[str, ...] = ()

    def plus(self, other: ImportCounts) -> ImportCounts:
        """The counts of two parts of a list."""
        over_tagged = (*self.over_tagged, *other.over_tagged)
        return ImportCounts(self.added + other.added, self.known + other.known, over_tagged)


async def import_sites(
    session: AsyncSession,
    sites: Sequence[ImportedSite],
    *,
    created_by: UUID,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> ImportCounts:
    """Watch up to `SITES_PER_STEP` sites, each of another domain, and queue or join their scans."""
    addresses = {site.address.domain: site.address for site in sites}
    watched = await watch_domains(
        session, sites, created_by=created_by, default_interval_hours=default_interval_hours
    )
    jobs = [
        NewJob(
            domain=site.domain,
            base_url=scan_address(addresses[site.domain]),
            created_by=created_by,
            domain_id=site.id,
            max_pages=site.max_pages,
            priority=Priority.BATCH,
            max_attempts=max_attempts,
        )
        for site in sorted(watched, key=lambda site: site.domain)
    ]
    if jobs:
        await create_many(session, jobs)
    added = sum(site.is_new for site in watched)
    over_tagged = addresses.keys() - {site.domain for site in watched}
    return ImportCounts(added, len(watched) - added, tuple(sorted(over_tagged)))


def without_repeats(sites: Sequence[ImportedSite]) -> list[ImportedSite]:
    """One entry for each domain: the last interval that is given for it, and all its tags.

    Its address is the last one that has a scheme, or the last one.
    """
    by_domain: dict[str, ImportedSite] = {}
    for site in sites:
        before = by_domain.pop(site.address.domain, site)
        interval = site.scan_interval_hours
        keeps_address = before.address.scheme_given and not site.address.scheme_given
        by_domain[site.address.domain] = ImportedSite(
            before.address if keeps_address else site.address,
            before.scan_interval_hours if interval is None else interval,
            tuple(sorted({*before.tags, *site.tags})),
        )
    return list(by_domain.values())


async def count_pending(session: Reader, user_id: UUID, enough: int) -> int:
    """The pending jobs of a user, counted no further than `enough`; read from `ix_jobs_fair`."""
    priorities = [queue_literal(int(priority)) for priority in Priority]
    some = (
        select(Job.id)
        .where(is_pending(Job), Job.priority.in_(priorities), Job.created_by == user_id)
        .limit(enough)
        .subquery()
    )
    return int(await session.scalar(select(func.count()).select_from(some)) or 0)


async def lock_pending(session: AsyncSession, user_id: UUID) -> None:
    """Serialize the transactions that count and add jobs of a user, until this one ends.

    To be taken before any row is locked, so that two transactions never wait for each other.
    """
    key = func.hashtextextended(f"waiting jobs:{user_id}", 0)
    await session.execute(select(func.pg_advisory_xact_lock(key)))


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One item of a batch as it was typed: an address, or why it is invalid."""

    domain: str
    address: WebAddress | None
    error_code: str | None = None
    error: str | None = None


async def create_batch(
    session: AsyncSession,
    entries: Sequence[BatchEntry],
    *,
    created_by: UUID,
    max_pages: int | None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> UUID:
    """Queue a job for every valid entry and store the others as failed."""
    batch = Batch(total=len(entries), max_pages=max_pages, created_by=created_by)
    session.add(batch)
    await session.flush()
    ids = await _register(session, entries, created_by)
    jobs = await _submit(session, entries, ids, batch, max_attempts)
    await session.execute(
        core_insert(BatchItem),
        [
            _item(batch.id, n, entry, jobs.get(_batch_entry_domain(entry)))
            for n, entry in enumerate(entries)
        ],
    )
    return batch.id


async def _register(
    session: AsyncSession, entries: Sequence[BatchEntry], created_by: UUID
) -> dict[str, UUID]:
    addresses = _batch_addresses(entries)
    if not addresses:
        return {}
    return await register_domains(session, list(addresses.values()), created_by=created_by)


def _batch_addresses(entries: Sequence[BatchEntry]) -> dict[str, WebAddress]:
    return {entry.address.domain: entry.address for entry in entries if entry.address}


async def _submit(
    session: AsyncSession,
    entries: Sequence[BatchEntry],
    ids: Mapping[str, UUID],
    batch: Batch,
    max_attempts: int,
) -> dict[str, SubmittedJob]:
    jobs = [
        NewJob(
            domain=domain,
            base_url=scan_address(address),
            created_by=batch.created_by,
            domain_id=ids[domain],
            max_pages=batch.max_pages,
            priority=Priority.BATCH,
            max_attempts=max_attempts,
        )
        for domain, address in sorted(_batch_addresses(entries).items())
    ]
    return await create_many(session, jobs) if jobs else {}


def _batch_entry_domain(entry: BatchEntry) -> str:
    return entry.address.domain if entry.address else ""


def _item(
    batch_id: UUID, position: int, entry: BatchEntry, job: SubmittedJob | None
) -> dict[str, object]:
    return {
        "batch_id": batch_id,
        "position": position,
        "domain": entry.domain,
        "job_id": job.id if job else None,
        "job_uuid": job.job_id if job else None,
        "status": None if job else JobStatus.FAILED,
        "error_code": entry.error_code,
        "error": entry.error,
    }


async def close_batches(session: AsyncSession) -> int:
    """Freeze the batches whose last item has ended, so that they outlive their jobs."""
    open_item = (
        select(BatchItem.batch_id)
        .join(Job, Job.id == BatchItem.job_id)
        .where(BatchItem.batch_id == Batch.id, Job.status.in_(ACTIVE_STATUSES))
        .exists()
    )
    ended = (
        await session.execute(
            select(Batch)
            .where(Batch.finished_at.is_(None), ~open_item)
            .limit(50)
            .with_for_update(skip_locked=True)
        )
    ).scalars()
    count = 0
    for batch in ended:
        await freeze_items(session, BatchItem.batch_id == batch.id)
        await _freeze_counts(session, batch)
        count += 1
    return count


async def freeze_items(session: AsyncSession, which: ColumnElement[bool]) -> None:
    """Copy onto the chosen items how their jobs ended."""
    await session.execute(
        update(BatchItem)
        .where(which, BatchItem.job_id == Job.id)
        .values(
            status=Job.status,
            error_code=Job.error_code,
            error=Job.error,
            started_at=Job.started_at,
            finished_at=Job.finished_at,
        )
        .execution_options(synchronize_session=False)
    )


async def _freeze_counts(session: AsyncSession, batch: Batch) -> None:
    statement = select(
        func.count().filter(BatchItem.status == JobStatus.COMPLETED),
        func.max(BatchItem.finished_at),
    ).where(BatchItem.batch_id == batch.id)
    completed, finished_at = (await session.execute(statement)).one()
    batch.completed, batch.failed = completed, batch.total - completed
    batch.finished_at = finished_at or func.now()
    await session.flush()
