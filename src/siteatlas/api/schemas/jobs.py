"""Shapes of jobs: submitting a scan, and what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    DOMAIN_ID,
    JOB_ID,
    LATER,
    MAX_ADDRESS_CHARS,
    MAX_PAGES,
    NOON,
    SITEMAP_COUNT,
    SITEMAP_ID,
    USER_ID,
    Address,
    AnswerShape,
    Count,
    FreeObject,
    JobStatusWord,
    Line,
    MaxPages,
    Name,
    Paragraph,
    QueryShape,
    RequestShape,
    Share,
    SitemapTypeWord,
    SmallCount,
    Url,
    Word,
    declared,
    examples,
    one_of,
)

StatusWord = Literal[
    "pending", "processing", "completed", "failed", "cancelled", "complete", "error"
]

ATTEMPT_OUTCOMES = (
    "completed",
    "failed",
    "retried",
    "released",
    "snoozed",
    "rescued",
    "cancelled",
)

ACCEPTED = {
    "job_id": JOB_ID,
    "status": "pending",
    "status_url": f"/api/v3/sitemap/status/{JOB_ID}",
    "created_at": NOON,
    "deduplicated": False,
    "max_pages": None,
    "warning": None,
}
RESULT = {
    "domain": "example.com",
    "max_pages": None,
    "scan_id": 7,
    "sitemap_count": 1,
    "url_count": 12,
    "distinct_url_count": 12,
    "partial": False,
    "reasons": [],
    "sitemaps": [
        {
            "id": SITEMAP_ID,
            "url": "https://example.com/sitemap.xml",
            "type": "standard",
            "url_count": 12,
        }
    ],
    "sitemaps_truncated": False,
}
STATUS = {
    "job_id": JOB_ID,
    "id": 42,
    "status": "completed",
    "progress": 1.0,
    "domain": "example.com",
    "domain_id": DOMAIN_ID,
    "created_by": USER_ID,
    "result_data": RESULT,
    "error": None,
    "error_code": None,
    "attempt": 1,
    "created_at": NOON,
    "started_at": NOON,
    "finished_at": LATER,
    "updated_at": LATER,
}
JOB = STATUS | {
    "job_type": "sitemap",
    "max_attempts": 5,
    "priority": 0,
    "run_at": NOON,
    "worker_id": None,
    "cancel_requested_at": None,
}
ATTEMPT = {
    "attempt": 1,
    "worker_id": "host-1234",
    "started_at": NOON,
    "ended_at": LATER,
    "outcome": "completed",
    "error_code": None,
    "error": None,
}


class FoundSitemap(AnswerShape):
    """A document that a scan read, and how many URLs it lists."""

    id: UUID
    url: Url
    type: SitemapTypeWord
    url_count: Count


class ScanResult(AnswerShape):
    """What a scan found. While it runs, only some of these fields are there."""

    model_config = ConfigDict(json_schema_extra=examples(RESULT))

    domain: Name | None = None
    max_pages: Count | None = Field(None, description="The URL limit of this scan, if any.")
    scan_id: Count | None = None
    sitemap_count: Count | None = Field(None, description=SITEMAP_COUNT)
    known_sitemap_count: Count | None = Field(
        None, description="Number of documents known so far; only while the scan is running."
    )
    url_count: Count | None = None
    distinct_url_count: Count | None = None
    partial: bool | None = Field(None, description="Whether the scan is partial.")
    reasons: Annotated[list[Word], declared(maxItems=100)] | None = Field(
        None, description="Codes of the reasons why the scan is partial."
    )
    sitemaps: Annotated[list[FoundSitemap], declared(maxItems=100)] | None = Field(
        None, description="The largest documents, at most 100."
    )
    sitemaps_truncated: bool | None = Field(
        None, description="Whether `sitemaps` is incomplete; `sitemap_count` counts all documents."
    )


def _only_scan_result(schema: dict[str, Any]) -> None:
    """The stored object is passed on as it is, and described as the result of a scan."""
    kinds: list[dict[str, Any]] = schema["anyOf"]
    schema["anyOf"] = [kind for kind in kinds if "$ref" in kind or kind.get("type") == "null"]


ResultData = Annotated[
    FreeObject | ScanResult | None,
    Field(union_mode="left_to_right", json_schema_extra=_only_scan_result),
]


class ScanRequest(RequestShape):
    """A site to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {"base_url": "example.com"},
            {"base_url": "https://www.example.com/sitemap.xml", "watch": True},
            {"base_url": "https://www.example.com/news.xml", "only_document": True},
        )
    )

    base_url: Address = Field(
        description=(
            "The site, with or without scheme, a page of it, or one sitemap of it. "
            "A sitemap that could be read is read by later scans too."
        )
    )
    max_pages: MaxPages | None = Field(
        None, description="Most URLs that the scan stores; without it the operator's limit holds."
    )
    watch: bool = Field(False, description="Keep watching the site after this scan.")
    only_document: bool = Field(
        False,
        description="Read just the sitemap at `base_url`, and its children if it is an index. "
        "All else that is stored of the site stays as it is.",
    )


class ScanAccepted(AnswerShape):
    """The job that scans the site; `deduplicated` when the site already had an active one."""

    model_config = ConfigDict(json_schema_extra=examples(ACCEPTED))

    job_id: UUID
    status: JobStatusWord
    status_url: Line
    created_at: datetime
    deduplicated: bool
    max_pages: Annotated[int, declared(minimum=1, maximum=MAX_PAGES)] | None
    warning: Line | None = Field(None, description="Set if no worker is running.")


class JobStatusAnswer(AnswerShape):
    """How far a job has come."""

    model_config = ConfigDict(json_schema_extra=examples(STATUS))

    job_id: UUID
    id: Count
    status: JobStatusWord
    progress: Share
    domain: Name | None
    domain_id: UUID | None
    created_by: UUID
    result_data: ResultData
    error: Paragraph | None
    error_code: Word | None
    attempt: SmallCount
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class JobAnswer(JobStatusAnswer):
    """A job with all that the queue knows of it."""

    model_config = ConfigDict(json_schema_extra=examples(JOB))

    job_type: Word
    max_attempts: SmallCount
    priority: SmallCount
    run_at: datetime
    worker_id: Name | None
    cancel_requested_at: datetime | None


class AttemptAnswer(AnswerShape):
    """How one attempt ended."""

    model_config = ConfigDict(json_schema_extra=examples(ATTEMPT))

    attempt: SmallCount
    worker_id: Name | None
    started_at: datetime | None
    ended_at: datetime
    outcome: Annotated[str, one_of(ATTEMPT_OUTCOMES)]
    error_code: Word | None
    error: Paragraph | None


class JobDetailAnswer(JobAnswer):
    """A job with its ended attempts, the latest first."""

    model_config = ConfigDict(json_schema_extra=examples(JOB | {"attempts": [ATTEMPT]}))

    attempts: Annotated[list[AttemptAnswer], declared(maxItems=100)]


class JobsQuery(QueryShape):
    """Which jobs to list."""

    status: StatusWord | None = Field(
        None, description="`complete` and `error` are accepted for `completed` and `failed`."
    )
    domain: str | None = Field(None, min_length=1, max_length=MAX_ADDRESS_CHARS)
