"""Joins the active job of a site instead of creating a second one.

A submission that names a document adds its address to the job that it joins: this scan reads it if
it has not started yet, otherwise the next one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    SmallInteger,
    Text,
    any_,
    bindparam,
    case,
    func,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.net.address import parse_site
from siteatlas.queue.new_job import NewJob, Priority
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.scanner.discovery.well_known import names_document
from siteatlas.storage.models import SITEMAP_JOB, SYSTEM_USER_ID, Job, JobStatus
from siteatlas.storage.tables import JOBS

# How many documents may be added to one job, and how many of the newest jobs a scan examines.
MAX_DOCUMENTS = 100
JOBS_EXAMINED = 100

FIND_ACTIVE = (
    select(Job)
    .where(
        Job.dedup_key == bindparam("site"),
        Job.job_type == SITEMAP_JOB,
        Job.status.in_(ACTIVE_STATUSES),
    )
    .execution_options(populate_existing=True)
)
FIND_ALL_ACTIVE = (
    select(Job)
    .where(
        Job.dedup_key == any_(bindparam("sites", type_=ARRAY(Text()))),
        Job.job_type == SITEMAP_JOB,
        Job.status.in_(ACTIVE_STATUSES),
    )
    .execution_options(populate_existing=True)
)


def _added_documents() -> Any:
    """The documents that submissions have added to a job."""
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
    """Whether a job has a filter, and the submission that joins it has none or another one."""
    requested_filter = bindparam("requested_filter", type_=JSONB(none_as_null=True))
    child_filter = Job.job_metadata["child_filter"]
    return child_filter.astext.is_not(None) & child_filter.is_distinct_from(requested_filter)


def _merged(condition: Any, changes: Any, metadata: Any = Job.job_metadata) -> Any:
    """The metadata of a job with these changes if the condition holds."""
    return case((condition, metadata.op("||")(changes)), else_=metadata)


WIDEN = _widen_statement()


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


ADD_DOCUMENT = _add_document_statement()
# The schedule is nobody: a job that it joins still belongs to one user alone.
SHARE = (
    update(Job)
    .where(
        Job.id == any_(bindparam("joined_jobs", type_=ARRAY(BigInteger()))),
        Job.created_by != bindparam("joined_by"),
        bindparam("joined_by") != SYSTEM_USER_ID,
        ~Job.shared,
    )
    .values(shared=True)
    .execution_options(synchronize_session=False)
)


def joined_documents() -> Any:
    """The lists of documents in submissions that joined recent jobs of `of_domain`."""
    jobs = JOBS.alias("newest_jobs")
    newest = (
        select(jobs.c.job_metadata["documents"].label("documents"))
        .where(jobs.c.domain_id == bindparam("of_domain"), jobs.c.job_type == SITEMAP_JOB)
        .order_by(jobs.c.id.desc())
        .limit(JOBS_EXAMINED)
        .subquery("newest")
    )
    lists = select(func.jsonb_agg(newest.c.documents, type_=JSONB()))
    return lists.where(newest.c.documents.is_not(None)).scalar_subquery()


async def find_sufficient_jobs(session: AsyncSession, requests: Sequence[NewJob]) -> dict[str, Job]:
    """The active jobs, by site, that already satisfy the request.

    One statement for any number of sites. The others are updated one by one.
    """
    by_site = {new.domain: new for new in requests if _named_document(new) is None}
    found = await session.scalars(FIND_ALL_ACTIVE, {"sites": list(by_site)})
    jobs = {job.dedup_key: job for job in found if job.dedup_key is not None}
    sufficient = {site: job for site, job in jobs.items() if _satisfies(job, by_site[site])}
    for user in {new.created_by for new in by_site.values()}:
        await _share(session, sufficient.values(), user)
    return sufficient


async def _share(session: AsyncSession, jobs: Iterable[Job], user: UUID) -> None:
    """Mark the jobs of other users that this user joins: they belong to nobody alone."""
    joined = [job.id for job in jobs if job.created_by != user and not job.shared]
    if joined:
        await session.execute(SHARE, {"joined_jobs": joined, "joined_by": user})


def _satisfies(job: Job, new: NewJob) -> bool:
    """Whether `WIDEN` would leave the job as it is."""
    if job.status != JobStatus.PENDING:
        return not _must_widen_running(job, new)
    limit = (job.result_data or {}).get("max_pages")
    narrower = limit is not None and (new.max_pages is None or new.max_pages > limit)
    return not narrower and not _reads_less(job, new) and new.priority >= job.priority


def _must_widen_running(job: Job, new: NewJob) -> bool:
    """Whether a running job reads less than a user requests; a scheduled scan can wait for it."""
    return new.priority < Priority.SCHEDULED and _reads_less(job, new)


def _reads_less(job: Job, new: NewJob) -> bool:
    """Whether the site is requested, and the job reads one document or has another filter."""
    if new.document is not None:
        return False
    metadata = job.job_metadata or {}
    child_filter = metadata.get("child_filter")
    is_filtered_otherwise = child_filter is not None and child_filter != new.stored_filter
    return metadata.get("document") is not None or is_filtered_otherwise


async def join(session: AsyncSession, new: NewJob) -> Job | None:
    """Join the active job of the site and add the document that the submission names."""
    job = await _join_and_widen(session, new)
    if job is not None:
        await _share(session, [job], new.created_by)
    document = _named_document(new)
    if job is None or document is None or _reads_only_document(job, document):
        return job
    params = {"of_job": job.id, "added": document}
    return (await session.scalars(ADD_DOCUMENT, params)).one_or_none()


def _named_document(new: NewJob) -> str | None:
    """The document that a submission names; without its host if no scheme was given."""
    if new.document is not None:
        return new.document
    address = parse_site(new.base_url)
    if not names_document(address.path):
        return None
    return address.url if address.scheme_given else address.path


def _reads_only_document(job: Job, document: str) -> bool:
    """Whether the active job reads this one document instead of the whole site."""
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
    widened = (await session.execute(WIDEN, requested)).scalar_one_or_none()
    return widened or await _active(session, new.domain)


async def _active(session: AsyncSession, site: str) -> Job | None:
    """The active job of a site, if there is one."""
    return (await session.scalars(FIND_ACTIVE, {"site": site})).one_or_none()
