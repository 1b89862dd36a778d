"""Joins the active job of a site instead of creating a second one.

A submission that names a document adds its address to the job that it joins: this scan reads it if
it has not started yet, otherwise the next one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus
from siteatlas.storage.tables import JOBS

# How many addresses wait with one job, and in how many of the newest jobs a scan looks for them.
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


def _named_since() -> Any:
    """The documents that were left with a job."""
    return func.coalesce(Job.job_metadata["documents"], func.jsonb_build_array(), type_=JSONB())


def _widening() -> Any:
    """Make a job satisfy one more submission, in one statement: many may join at once.

    No limit is the widest one, and the whole site is more than a document of it. A running job is
    changed only when it reads one document and the whole site is wanted: it goes back to the queue
    at the end of its attempt. Gives nothing when there is nothing to change.
    """
    waits = Job.status == JobStatus.PENDING
    may_widen = bindparam("may_widen_running", type_=Boolean()) & (
        Job.status == JobStatus.PROCESSING
    )
    limit = Job.result_data["max_pages"].astext.cast(BigInteger)
    wanted_limit = bindparam("wanted_limit", type_=BigInteger())
    wider = limit.is_not(None) & (wanted_limit.is_(None) | (wanted_limit > limit))
    wanted_document = bindparam("wanted_document", type_=Text())
    whole = Job.job_metadata["document"].astext.is_not(None) & wanted_document.is_(None)
    wanted_priority = bindparam("wanted_priority", type_=SmallInteger())
    base_url = bindparam("wanted_base_url", type_=Text())
    no_document = func.jsonb_build_object(
        "document",
        null(),
        "base_url",
        base_url,
        # The document of the job is read with the site, along with those added since.
        "documents",
        _named_since().op("||")(func.jsonb_build_array(Job.job_metadata["document"])),
    )
    new_limit = func.jsonb_build_object("max_pages", wanted_limit)
    return (
        update(Job)
        .where(Job.id == bindparam("of_job"))
        .where((waits & (wider | whole | (wanted_priority < Job.priority))) | (may_widen & whole))
        .values(
            result_data=case((wider, Job.result_data.op("||")(new_limit)), else_=Job.result_data),
            job_metadata=case(
                (whole, Job.job_metadata.op("||")(no_document)), else_=Job.job_metadata
            ),
            progress=case((waits & whole, 0.0), else_=Job.progress),
            priority=func.least(Job.priority, wanted_priority),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


WIDEN = _widening()


def _adding() -> Any:
    """Leave the address of a document with a job, once; gives nothing when the job has ended."""
    metadata = func.coalesce(Job.job_metadata, func.jsonb_build_object())
    waiting = _named_since()
    added = func.jsonb_build_array(bindparam("added", type_=Text()), type_=JSONB())
    enough = waiting.contains(added) | (func.jsonb_array_length(waiting) >= MAX_DOCUMENTS)
    documents = case((enough, waiting), else_=waiting.op("||")(added))
    return (
        update(Job)
        .where(Job.id == bindparam("of_job"), Job.status.in_(ACTIVE_STATUSES))
        .values(job_metadata=metadata.op("||")(func.jsonb_build_object("documents", documents)))
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


ADD_DOCUMENT = _adding()


def joined_documents() -> Any:
    """The lists of documents named by submissions that joined recent jobs of `of_domain`."""
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


async def satisfying(session: AsyncSession, wishes: Sequence[NewJob]) -> dict[str, Job]:
    """The active jobs, by site, that give all that is wished of them as they are.

    One statement for any number of sites. The others have to be told, one by one, what is wished.
    """
    by_site = {new.domain: new for new in wishes if _document_of(new) is None}
    found = await session.scalars(FIND_ALL_ACTIVE, {"sites": list(by_site)})
    jobs = {job.dedup_key: job for job in found if job.dedup_key is not None}
    return {site: job for site, job in jobs.items() if _satisfies(job, by_site[site])}


def _satisfies(job: Job, new: NewJob) -> bool:
    """Whether `WIDEN` would leave the job as it is."""
    if job.status != JobStatus.PENDING:
        return not _must_widen_running(job, new)
    limit = (job.result_data or {}).get("max_pages")
    document = (job.job_metadata or {}).get("document")
    narrower = limit is not None and (new.max_pages is None or new.max_pages > limit)
    partial = document is not None and new.document is None
    return not narrower and not partial and new.priority >= job.priority


def _must_widen_running(job: Job, new: NewJob) -> bool:
    """Whether a running job reads less than a person wants; a scheduled scan can wait for it."""
    return (
        new.document is None
        and (job.job_metadata or {}).get("document") is not None
        and new.priority < Priority.SCHEDULED
    )


async def join(session: AsyncSession, new: NewJob) -> Job | None:
    """The active job of the site, told which document the submission names."""
    job = await _join(session, new)
    document = _document_of(new)
    if job is None or document is None or _reads_only(job, document):
        return job
    told = {"of_job": job.id, "added": document}
    return (await session.scalars(ADD_DOCUMENT, told)).one_or_none()


def _document_of(new: NewJob) -> str | None:
    """The document that a submission names; without its host when no scheme was given."""
    if new.document is not None:
        return new.document
    address = parse_site(new.base_url)
    if not names_document(address.path):
        return None
    return address.url if address.scheme_given else address.path


def _reads_only(job: Job, document: str) -> bool:
    return (job.job_metadata or {}).get("document") == document


async def _join(session: AsyncSession, new: NewJob) -> Job | None:
    """The active job of the site; while it waits, it takes over the wider wish of the two.

    So does one that runs and reads less than the whole site, unless the wish is a scheduled one.
    """
    job = await _active(session, new.domain)
    if job is None or (job.status != JobStatus.PENDING and not _must_widen_running(job, new)):
        return job
    wish = {
        "of_job": job.id,
        "wanted_limit": new.max_pages,
        "wanted_priority": int(new.priority),
        "wanted_document": new.document,
        "wanted_base_url": new.base_url,
        "may_widen_running": new.priority < Priority.SCHEDULED,
    }
    widened = (await session.execute(WIDEN, wish)).scalar_one_or_none()
    return widened or await _active(session, new.domain)


async def _active(session: AsyncSession, site: str) -> Job | None:
    return (await session.scalars(FIND_ACTIVE, {"site": site})).one_or_none()
