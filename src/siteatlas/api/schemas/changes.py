"""Models of the change feed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from siteatlas.api.schemas.base import (
    AnswerShape,
    Count,
    Example,
    FreeObject,
    Name,
    PageAnswer,
    QueryShape,
    Shown,
    SmallCount,
    TagFilter,
    Url,
    Word,
    declared,
    list_pattern,
    one_of,
    response_example,
)
from siteatlas.catalog.paging import MAX_BIGINT, MAX_CURSOR_CHARS, MAX_LIMIT
from siteatlas.storage.models import ChangeKind, FeedEventKind, RemovalEvidence


class CompareQuery(QueryShape):
    """Which scans to compare."""

    from_scan: int = Field(
        alias="from", ge=1, le=MAX_BIGINT, description="The id of the earlier scan."
    )
    to_scan: int = Field(alias="to", ge=1, le=MAX_BIGINT, description="The id of the later scan.")


class ComparedEntryAnswer(AnswerShape):
    """How one entry differs between two scans."""

    kind: Annotated[str, one_of(ChangeKind), Example("changed")] = Field(
        description="As in the change feed."
    )
    url: Annotated[Url, Example("https://example.com/about")]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    previous_sitemap: Url | None = Field(description="Where a URL that moved was listed.")
    previous_sitemap_id: UUID | None
    before: Annotated[FreeObject | None, Example({"changefreq": "daily"})] = Field(
        description="What was listed; null if the URL was not listed."
    )
    after: Annotated[FreeObject | None, Example({"changefreq": "weekly"})] = Field(
        description="What is listed after the later scan; null if the URL is not listed any more."
    )
    fields: Annotated[list[Word], declared(maxItems=100), Example(["changefreq"])] = Field(
        description="What differs between `before` and `after`."
    )


class ComparisonAnswer(PageAnswer[ComparedEntryAnswer]):
    """One page of differences; it may be empty and still have a `next_cursor`."""

    examined: SmallCount | None = Field(
        description="Number of changes examined for this page, about 10,000 at most."
    )
    from_seq: Annotated[Count, Example(3)] = Field(
        description="Number of the earlier scan in the change feed."
    )
    to_seq: Annotated[Count, Example(7)] = Field(
        description="Number of the later scan in the change feed."
    )


KINDS = [kind.value for kind in (*ChangeKind, *FeedEventKind)]


class ChangeAnswer(AnswerShape):
    """One event of the change feed."""

    id: Annotated[Word, Example("change-7-3b9a8d521f644f0e9d7c6e2b8c1a4f35-5b1f0a9c3d2e7f68")] = (
        Field(description="Fixed: the same event always has the same id.")
    )
    seq: Annotated[Count, Example(7)] = Field(
        description="Number of the publication; all events of a scan have the same."
    )
    kind: Annotated[str, one_of(KINDS), Example("changed")]
    domain: Annotated[Name, Example("example.com")]
    url: Annotated[Url | None, Example("https://example.com/about")] = Field(
        description="Null for events of documents and domains."
    )
    sitemap: Annotated[Url | None, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID | None, Example(Shown.sitemap_id)] = Field(
        description="With `url`, the key of the entry that changed."
    )
    previous_sitemap: Url | None = Field(description="With `moved`: where the URL was listed.")
    previous_sitemap_id: UUID | None
    scan_id: Annotated[Count | None, Example(7)]
    not_before: Annotated[datetime | None, Example(Shown.noon)] = Field(
        description="The last read that showed the old state."
    )
    not_after: Annotated[datetime | None, Example(Shown.later)] = Field(
        description="The read that showed the new state."
    )
    before: Annotated[FreeObject | None, Example({"lastmod": "2025-11-01T00:00:00Z"})] = Field(
        description="The values listed before; null if the URL was not listed."
    )
    after: Annotated[FreeObject | None, Example({"lastmod": "2025-11-15T00:00:00Z"})] = Field(
        description="All values listed now; null if the URL is not listed."
    )
    fields: Annotated[list[Word], declared(maxItems=100), Example(["lastmod"])] = Field(
        description="The values that differ between `before` and `after`."
    )
    evidence: Annotated[str, one_of(RemovalEvidence)] | None = Field(
        description="With `removed`: what proves it."
    )
    data: FreeObject | None = Field(description="Details of events of documents and domains.")


class FeedPageAnswer(AnswerShape):
    """One page of the change feed: all events of the numbers from `from_seq` to `to_seq`.

    The last events of a page may belong to the number after `to_seq`; the next page has the rest.
    """

    items: Annotated[
        list[ChangeAnswer],
        declared(maxItems=MAX_LIMIT),
        Example([response_example(ChangeAnswer)]),
    ]
    from_seq: Annotated[Count, Example(7)]
    to_seq: Annotated[Count, Example(7)] = Field(
        description="The last number whose events are complete with this page."
    )
    next_cursor: Annotated[str, declared(maxLength=MAX_CURSOR_CHARS), Example("WyI1…Il0")] = Field(
        description="Where the next page starts; never null."
    )
    at_head: Annotated[bool, Example(True)] = Field(
        description="True if nothing more has been published. A page may be empty and not at the "
        "head: continue with `next_cursor`."
    )
    feed_id: Annotated[UUID, Example("9e1d4c6a-2b7f-4d3e-8a5c-0f6b1d2e3c4a")] = Field(
        description="Renewed when the database is restored; cursors of another feed are expired."
    )
    retained_from: Annotated[Count, Example(0)] = Field(
        description="Events up to this number have been removed."
    )


class KindsFilter(BaseModel):
    """Which kinds of events to show."""

    kinds: str | None = Field(
        None,
        max_length=1000,
        pattern=list_pattern(KINDS),
        description="Only events of these kinds, separated by commas.",
        examples=["added,removed"],
    )

    @property
    def wanted_kinds(self) -> frozenset[str] | None:
        """The kinds to show; None for all."""
        return None if self.kinds is None else frozenset(self.kinds.split(","))


class AtomQuery(KindsFilter):
    """Which of the newest events of a site to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AllAtomQuery(AtomQuery, TagFilter):
    """Which of the newest events of all sites to show."""


class ChangesQuery(QueryShape, KindsFilter):
    """Which part of the change feed to read."""

    after: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="Only events after this number, such as `as_of_seq` or `to_seq`. Not together "
        "with `cursor`. Without either, the feed is read from the oldest event.",
    )
    wait: float = Field(
        0,
        ge=0,
        le=30,
        allow_inf_nan=False,
        description="Seconds to wait for an event if there is none yet.",
    )
    format: Literal["json", "jsonl"] = Field(
        "json", description="`jsonl`: one event per line; the last line has `end` set to true."
    )


class AllChangesQuery(ChangesQuery, TagFilter):
    """Which part of the change feed of all sites to read."""
