"""Models of jobs: the submission of a scan and its result."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    LOWERED,
    MAX_ADDRESS_CHARS,
    NO_NUL,
    SITEMAP_COUNT,
    Address,
    AnswerShape,
    Count,
    Example,
    FreeObject,
    JobStatusWord,
    Line,
    Moment,
    Name,
    Paragraph,
    QueryShape,
    Seconds,
    Share,
    Shown,
    SitemapTypeWord,
    SmallCount,
    TagFilter,
    Url,
    UrlLimitShape,
    Word,
    declared,
    examples,
    one_of,
    response_example,
)
from siteatlas.scanner.options import MAX_PATTERN_CHARS, MAX_PATTERNS
from siteatlas.settings import MAX_PAGES
from siteatlas.storage.models import AttemptOutcome

StatusWord = Annotated[
    Literal["pending", "processing", "completed", "failed", "cancelled", "complete", "error"],
    LOWERED,
]


class FoundSitemap(AnswerShape):
    """A document that a scan read, and how many URLs it lists."""

    id: UUID
    url: Url
    type: SitemapTypeWord
    url_count: Count


class SkippedSitemaps(AnswerShape):
    """How many sitemaps of indexes the filter of a scan left out."""

    by_address: Annotated[Count, Example(12)]
    by_date: Annotated[Count, Example(0)]


class ScanResult(AnswerShape):
    """What a scan found. While it is running, some of these fields are missing."""

    domain: Annotated[Name | None, Example("example.com")] = None
    max_pages: Annotated[Count | None, Example(None)] = Field(
        None, description="The URL limit of this scan, if any."
    )
    scan_id: Annotated[Count | None, Example(7)] = None
    sitemap_count: Annotated[Count | None, Example(1)] = Field(None, description=SITEMAP_COUNT)
    known_sitemap_count: Count | None = Field(
        None, description="Number of documents known so far; only while the scan is running."
    )
    url_count: Annotated[Count | None, Example(12)] = None
    distinct_url_count: Annotated[Count | None, Example(12)] = None
    partial: Annotated[bool | None, Example(False)] = Field(
        None, description="Whether the scan is partial."
    )
    reasons: Annotated[Annotated[list[Word], declared(maxItems=100)] | None, Example([])] = Field(
        None, description="Codes of the reasons why the scan is partial."
    )
    sitemaps: Annotated[
        Annotated[list[FoundSitemap], declared(maxItems=100)] | None,
        Example(
            [
                {
                    "id": Shown.sitemap_id,
                    "url": "https://example.com/sitemap.xml",
                    "type": "standard",
                    "url_count": 12,
                }
            ]
        ),
    ] = Field(None, description="The largest documents, at most 100.")
    sitemaps_truncated: Annotated[bool | None, Example(False)] = Field(
        None, description="Whether `sitemaps` is incomplete; `sitemap_count` counts all documents."
    )
    skipped_sitemaps: SkippedSitemaps | None = Field(
        None, description="What the filter of the scan left out; absent without a filter."
    )


def _only_scan_result(schema: dict[str, Any]) -> None:
    """The stored object is passed on as it is, and described as the result of a scan."""
    kinds: list[dict[str, Any]] = schema["anyOf"]
    schema["anyOf"] = [kind for kind in kinds if "$ref" in kind or kind.get("type") == "null"]


ResultData = Annotated[
    FreeObject | ScanResult | None,
    Field(union_mode="left_to_right", json_schema_extra=_only_scan_result),
]


Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS, pattern=NO_NUL)], ...],
    Field(max_length=MAX_PATTERNS, strict=False),
]


class ScanRequest(UrlLimitShape):
    """A site to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {"base_url": "example.com"},
            {"base_url": "https://www.example.com/sitemap.xml", "watch": True},
            {"base_url": "https://www.example.com/news.xml", "only_document": True},
            {"base_url": "example.com", "sitemaps": ["*/blog-*"], "sitemaps_since": Shown.noon},
        )
    )

    base_url: Address = Field(
        description=(
            "The site, with or without scheme, a page of it, or one sitemap of it. "
            "A sitemap that could be read is read by later scans too."
        )
    )
    watch: bool = Field(False, description="Keep watching the site after this scan.")
    only_document: bool = Field(
        False,
        description="Read only the sitemap at `base_url`, and its children if it is an index. "
        "Everything else that is stored for the site stays unchanged.",
    )
    sitemaps: Patterns = Field(
        (),
        description="Of the sitemaps that an index lists, read only those whose URL matches one of "
        "these patterns. `*` stands for any characters, `?` for one, `[ab]` for one of a set; a "
        "pattern must match the whole URL.",
    )
    skip_sitemaps: Patterns = Field(
        (), description="Do not read sitemaps of an index whose URL matches one of these patterns."
    )
    sitemaps_since: Moment | None = Field(
        None,
        strict=False,
        description="Do not read sitemaps that an index lists with a `lastmod` before this time. "
        "Those without a `lastmod` are read. Without a time zone, the time is in UTC.",
    )


class ScanAccepted(AnswerShape):
    """The job that scans the site; `deduplicated` is true if the site already had an active job."""

    job_id: Annotated[UUID, Example(Shown.job_id)]
    status: Annotated[JobStatusWord, Example("pending")]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
    created_at: Annotated[datetime, Example(Shown.noon)]
    deduplicated: Annotated[bool, Example(False)]
    max_urls: Annotated[int, declared(minimum=1, maximum=MAX_PAGES)] | None
    max_pages: Annotated[int, declared(minimum=1, maximum=MAX_PAGES)] | None = Field(
        description="The same as `max_urls`."
    )
    warning: Annotated[Line | None, Example(None)] = Field(
        None, description="Set if no worker is running."
    )


class JobStatusAnswer(AnswerShape):
    """The status of a job."""

    job_id: Annotated[UUID, Example(Shown.job_id)]
    id: Annotated[Count, Example(42)]
    status: Annotated[JobStatusWord, Example("completed")]
    progress: Annotated[Share, Example(1.0)]
    domain: Annotated[Name | None, Example("example.com")]
    domain_id: Annotated[UUID | None, Example(Shown.domain_id)]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    result_data: Annotated[ResultData, Example(response_example(ScanResult))]
    error: Paragraph | None
    error_code: Word | None
    attempt: Annotated[SmallCount, Example(1)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    started_at: Annotated[datetime | None, Example(Shown.noon)]
    finished_at: Annotated[datetime | None, Example(Shown.later)]
    updated_at: Annotated[datetime, Example(Shown.later)]


class JobAnswer(JobStatusAnswer):
    """A job with all its fields."""

    job_type: Annotated[Word, Example("sitemap")]
    max_attempts: Annotated[SmallCount, Example(5)]
    priority: Annotated[SmallCount, Example(0)]
    run_at: Annotated[datetime, Example(Shown.noon)]
    worker_id: Name | None
    cancel_requested_at: datetime | None
    shared: Annotated[bool, Example(False)] = Field(
        description="Whether another user than `created_by` submitted the same site meanwhile."
    )
    requests: Annotated[SmallCount, Example(1)] = Field(
        description="How many users want the job; 0 if only the schedule does. The cancellation "
        "of the last one ends it."
    )


class AttemptAnswer(AnswerShape):
    """How one attempt ended."""

    attempt: Annotated[SmallCount, Example(1)]
    worker_id: Annotated[Name | None, Example("host-1234")]
    started_at: Annotated[datetime | None, Example(Shown.noon)]
    ended_at: Annotated[datetime, Example(Shown.later)]
    outcome: Annotated[str, one_of(AttemptOutcome), Example("completed")]
    error_code: Word | None
    error: Paragraph | None


class JobDetailAnswer(JobAnswer):
    """A job with its ended attempts, latest first."""

    attempts: Annotated[
        list[AttemptAnswer], declared(maxItems=100), Example([response_example(AttemptAnswer)])
    ]


class JobsQuery(QueryShape, TagFilter):
    """Which jobs to list."""

    status: StatusWord | None = Field(
        None, description="`complete` and `error` are accepted for `completed` and `failed`."
    )
    domain: str | None = Field(None, min_length=1, max_length=MAX_ADDRESS_CHARS)


MAX_DOMAINS = 1000


class BatchRequest(UrlLimitShape):
    """Sites to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domains": ["example.com", "example.org"]})
    )

    domains: Annotated[list[Address], Field(min_length=1, max_length=MAX_DOMAINS)]


class BatchItemAnswer(AnswerShape):
    """One site as submitted, with its job or the reason why it has none."""

    domain: Address
    job_id: UUID | None
    error_code: Word | None


class BatchCreated(AnswerShape):
    """A batch that was queued; sites that cannot be scanned have an `error_code`."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {
                "batch_id": Shown.batch_id,
                "status": "pending",
                "total_domains": 2,
                "status_url": f"/api/v3/sitemap/batch/status/{Shown.batch_id}",
                "items": [
                    {"domain": "example.com", "job_id": Shown.job_id, "error_code": None},
                    {"domain": "http://10.0.0.1", "job_id": None, "error_code": "egress_denied"},
                ],
                "warning": None,
            }
        )
    )

    batch_id: UUID
    status: JobStatusWord
    total_domains: SmallCount = Field(description="Number of distinct domains in the request.")
    status_url: Line
    items: Annotated[list[BatchItemAnswer], declared(maxItems=MAX_DOMAINS)]
    warning: Line | None = Field(None, description="Set if no worker is running.")


class DomainStatusAnswer(AnswerShape):
    """The status of one site of a batch."""

    status: JobStatusWord
    job_id: UUID | None
    start_time: datetime | None
    end_time: datetime | None
    processing_time: Seconds | None
    error: Paragraph | None
    error_code: Word | None
    partial: bool | None = Field(
        description="Whether the scan is partial; null until the job has ended, and again after "
        "the record of the job has been pruned."
    )
    reasons: Annotated[list[Word], declared(maxItems=100)] = Field(
        description="Codes of the reasons why the scan is partial."
    )


class BatchStatusAnswer(AnswerShape):
    """The status of a batch. Cancelled and rejected sites count as failed."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {
                "batch_id": Shown.batch_id,
                "status": "completed",
                "total_domains": 1,
                "completed_domains": 1,
                "failed_domains": 0,
                "partial_domains": 1,
                "progress": 1.0,
                "created_at": Shown.noon,
                "updated_at": Shown.later,
                "start_time": Shown.noon,
                "end_time": Shown.later,
                "processing_time": 4.0,
                "domain_statuses": {
                    "example.com": {
                        "status": "completed",
                        "job_id": Shown.job_id,
                        "start_time": Shown.noon,
                        "end_time": Shown.later,
                        "processing_time": 4.0,
                        "error": None,
                        "error_code": None,
                        "partial": True,
                        "reasons": ["truncated"],
                    }
                },
                "error": None,
                "metadata": {"max_pages": None},
            }
        )
    )

    batch_id: UUID
    status: JobStatusWord
    total_domains: SmallCount
    completed_domains: SmallCount
    failed_domains: SmallCount
    partial_domains: SmallCount = Field(
        description="Number of completed sites known to be partial."
    )
    progress: Share
    created_at: datetime
    updated_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    processing_time: Seconds | None
    domain_statuses: dict[str, DomainStatusAnswer]
    error: Line | None
    metadata: FreeObject
