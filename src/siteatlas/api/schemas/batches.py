"""Models of batches: many sites submitted together."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    BATCH_ID,
    JOB_ID,
    LATER,
    NOON,
    Address,
    AnswerShape,
    FreeObject,
    JobStatusWord,
    Line,
    MaxPages,
    Paragraph,
    RequestShape,
    Seconds,
    Share,
    SmallCount,
    Word,
    declared,
    examples,
)

MAX_DOMAINS = 1000

CREATED = {
    "batch_id": BATCH_ID,
    "status": "pending",
    "total_domains": 2,
    "status_url": f"/api/v3/sitemap/batch/status/{BATCH_ID}",
    "items": [
        {"domain": "example.com", "job_id": JOB_ID, "error_code": None},
        {"domain": "http://10.0.0.1", "job_id": None, "error_code": "egress_denied"},
    ],
    "warning": None,
}
STATUS = {
    "batch_id": BATCH_ID,
    "status": "completed",
    "total_domains": 1,
    "completed_domains": 1,
    "failed_domains": 0,
    "partial_domains": 1,
    "progress": 1.0,
    "created_at": NOON,
    "updated_at": LATER,
    "start_time": NOON,
    "end_time": LATER,
    "processing_time": 4.0,
    "domain_statuses": {
        "example.com": {
            "status": "completed",
            "job_id": JOB_ID,
            "start_time": NOON,
            "end_time": LATER,
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


class BatchRequest(RequestShape):
    """Sites to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domains": ["example.com", "example.org"]})
    )

    domains: Annotated[list[Address], Field(min_length=1, max_length=MAX_DOMAINS)]
    max_pages: MaxPages | None = Field(
        None, description="Maximum number of URLs that each scan stores."
    )


class BatchItemAnswer(AnswerShape):
    """One site as submitted, with its job or the reason why it has none."""

    domain: Address
    job_id: UUID | None
    error_code: Word | None


class BatchCreated(AnswerShape):
    """A batch that was queued; sites that cannot be scanned have an `error_code`."""

    model_config = ConfigDict(json_schema_extra=examples(CREATED))

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

    model_config = ConfigDict(json_schema_extra=examples(STATUS))

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
