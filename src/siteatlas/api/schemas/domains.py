"""Models of sites, their scans and their candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from siteatlas.api.schemas.base import (
    NO_NUL,
    QueryShape,
    RequestShape,
    Tag,
    TagFilter,
    UrlLimitShape,
    examples,
)
from siteatlas.catalog.domains import DOMAIN_SORTS, DomainState, DomainView
from siteatlas.catalog.findings import FindingFilter, FindingState
from siteatlas.catalog.problems import ProblemState
from siteatlas.catalog.sections import DEFAULT_SECTIONS, MAX_SECTIONS
from siteatlas.catalog.views import (
    MAX_ADDRESS_CHARS,
    Address,
    Count,
    Example,
    Line,
    Name,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    view_example,
)
from siteatlas.findings.rules import Severity
from siteatlas.settings import MAX_INTERVAL_HOURS, MIN_INTERVAL_HOURS
from siteatlas.text import MAX_TAGS, parse_tags


class SectionsQuery(BaseModel):
    """How many sections to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(
        DEFAULT_SECTIONS,
        ge=1,
        le=MAX_SECTIONS,
        description="Maximum number of sections; the largest come first.",
    )


class ProblemsQuery(QueryShape):
    """Which problems to list."""

    code: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9_]+$",
        description="Only problems with this code.",
    )
    sitemap: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only problems in the sitemap with this URL.",
    )
    state: ProblemState = Field(
        ProblemState.CURRENT,
        description="Current problems, resolved problems, or all.",
    )


class FindingsQuery(QueryShape):
    """Which findings to list."""

    code: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9_-]+$",
        description="Only this rule, by its code or by that of a problem.",
    )
    sitemap: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only findings in the sitemap with this URL.",
    )
    severity: Literal["note", "warning", "error"] = Field(
        "note", description="Only findings that are at least so severe."
    )
    state: FindingState = Field(
        FindingState.CURRENT,
        description="`current`: neither resolved nor accepted; `new`: it came with the last scan.",
    )

    @property
    def wanted(self) -> FindingFilter:
        """What to list."""
        return FindingFilter(self.code, self.sitemap, Severity.of(self.severity), self.state)


class AcceptRequest(RequestShape):
    """Why findings are left as they are."""

    model_config = ConfigDict(
        json_schema_extra=examples({"reason": "The shop writes these dates; the file is not ours."})
    )

    reason: str = Field(
        min_length=1, max_length=500, pattern=NO_NUL, description="For those who look next."
    )
    sitemap: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only in the sitemap with this URL; in all of the site without it.",
    )


@dataclass(frozen=True, slots=True)
class AcceptAnswer(View):
    """How many findings were accepted, or are no longer."""

    count: Annotated[Count, Example(3)]


class PolicyQuery(BaseModel):
    """Which agent and path to judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        pattern=NO_NUL,
        description="Only this agent, by the name that robots.txt has for it; all known ones "
        "without it.",
    )
    path: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only this path, or that of this URL; the largest sections without it.",
    )


INTERVAL = "Hours between scans; 0.016 is about one minute."
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
IntervalHours = Annotated[
    float,
    Field(ge=MIN_INTERVAL_HOURS, le=MAX_INTERVAL_HOURS, allow_inf_nan=False),
]


class DomainRequest(UrlLimitShape):
    """A site to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: Address = Field(description="The site, with or without scheme.")
    watch: bool = Field(True, description="False registers the site without watching it.")
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    tags: Tags = Field([], description="Tags to add; those that the site has are kept.")


class DomainChange(UrlLimitShape):
    """The fields to change; the others keep their values."""

    model_config = ConfigDict(
        json_schema_extra=examples({"paused": True}, {"watched": True, "scan_interval_hours": 6})
    )

    watched: bool | None = Field(
        None, description="Watching a site that is not watched makes it due immediately."
    )
    paused: bool | None = None
    scan_interval_hours: IntervalHours | None = Field(
        None, description=f"{INTERVAL} A new interval counts from the last scan, or from now."
    )
    tags: Tags | None = Field(None, description="All tags of the site; an empty list removes them.")

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("at least one field is required")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("a field must not be null")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields that the request sets, with their values."""
        given = self.model_dump(exclude_unset=True, exclude={"max_urls", "max_pages"})
        given |= {"max_pages": self.url_limit} if self.url_limit else {}
        return given if self.tags is None else given | {"tags": parse_tags(self.tags)}


class SiteHeadersRequest(RequestShape):
    """Request headers for scans of a site, and the one origin that gets them."""

    model_config = ConfigDict(
        json_schema_extra=examples({"origin": "https://example.com", "headers": {"X-Key": "x"}})
    )

    origin: Address = Field(description="Scheme, host and port; no other origin gets the headers.")
    headers: dict[str, Annotated[str, Field(max_length=8192)]] = Field(
        max_length=20, description="Values by name, which no response shows; empty removes them."
    )


@dataclass(frozen=True, slots=True)
class SiteHeadersAnswer(View):
    """The request headers of a site without their values."""

    origin: Annotated[Url, Example("https://example.com")]
    names: Annotated[list[Word], declared(maxItems=20), Example(["Authorization"])]


@dataclass(frozen=True, slots=True)
class DomainAdded(DomainView):
    """A site that was registered, and the scan that was queued."""

    job_id: Annotated[
        UUID | None,
        Example(Shown.job_id),
        Field(description="The job of the scan; null if `watch` is false."),
    ] = None
    status_url: Annotated[
        Line | None,
        Example(f"/api/v3/sitemap/status/{Shown.job_id}"),
        Field(description="Path of the status of the scan."),
    ] = None
    warning: Annotated[
        Line | None, Example(None), Field(description="Set if no worker is running.")
    ] = None


@dataclass(frozen=True, slots=True)
class ReleaseAnswer(View):
    """The scan that ends the hold of a site's removals."""

    domain: Annotated[Name, Example("example.com")]
    missing_count: Annotated[
        Count,
        Example(31),
        Field(description="Number of URLs that are removed if the scan misses them too."),
    ]
    job_id: Annotated[UUID, Example(Shown.job_id)]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
    deduplicated: Annotated[
        bool, Example(False), Field(description="Whether the active job of the site does it.")
    ]


class DomainsQuery(QueryShape, TagFilter):
    """Which sites to list."""

    watched: bool | None = None
    state: DomainState | None = Field(
        None, description="`attention`: the last scan failed or is partial, or removals are held."
    )
    contains: str | None = Field(
        None, min_length=1, max_length=255, pattern=NO_NUL, description="A part of the host."
    )
    sort: str = Field(
        "name",
        max_length=16,
        pattern=DOMAIN_SORTS,
        description="The order; with a minus sign, the highest or the latest comes first.",
    )


class CandidatesQuery(QueryShape):
    """Which candidates to list."""

    verdict: Literal["accepted", "rejected", "skipped"] | None = None


MAX_IMPORTED = 5_000


class ImportedSiteRequest(RequestShape):
    """A site of the list."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: str = Field(
        max_length=MAX_ADDRESS_CHARS, description="The site, with or without scheme."
    )
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    tags: Tags = Field([], description="Tags to add; those that the site has are kept.")


class ImportRequest(RequestShape):
    """Sites to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {
                "sites": [
                    {"domain": "example.com", "scan_interval_hours": 12, "tags": ["shop"]},
                    {"domain": "example.org"},
                ],
                "tags": ["customers"],
            }
        )
    )

    sites: Annotated[list[ImportedSiteRequest], Field(min_length=1, max_length=MAX_IMPORTED)]
    tags: Tags = Field([], description="Tags to add to every site of the list.")


@dataclass(frozen=True, slots=True)
class ImportFault(View):
    """A site of the list that was not added, and why."""

    position: Annotated[
        SmallCount, Example(1), Field(description="Its position in `sites`, counted from 0.")
    ]
    domain: Annotated[Name, Example("10.0.0.1")]
    error_code: Annotated[Word, Example("egress_denied")]
    error: Annotated[Line, Example("Connections to this address are not allowed.")]


@dataclass(frozen=True, slots=True)
class ImportAnswer(View):
    """What became of the list. A site that it names twice counts once."""

    added: Annotated[Count, Example(1), Field(description="Number of sites that were not stored.")]
    known: Annotated[Count, Example(0), Field(description="Number of sites that were stored.")]
    errors: Annotated[
        list[ImportFault],
        declared(maxItems=MAX_IMPORTED),
        Example([view_example(ImportFault)]),
    ]
    warning: Annotated[
        Line | None, Example(None), Field(description="Set if no worker is running.")
    ] = None
