"""Models of the import of a list of sites."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    MAX_ADDRESS_CHARS,
    AnswerShape,
    Count,
    Example,
    Line,
    Name,
    RequestShape,
    SmallCount,
    Word,
    declared,
    examples,
    response_example,
)
from siteatlas.api.schemas.domains import INTERVAL, IntervalHours, Tags

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


class ImportFault(AnswerShape):
    """A site of the list that was not added, and why."""

    position: Annotated[SmallCount, Example(1)] = Field(
        description="Its position in `sites`, counted from 0."
    )
    domain: Annotated[Name, Example("10.0.0.1")]
    error_code: Annotated[Word, Example("egress_denied")]
    error: Annotated[Line, Example("Connections to this address are not allowed.")]


class ImportAnswer(AnswerShape):
    """What became of the list. A site that it names twice counts once."""

    added: Annotated[Count, Example(1)] = Field(description="Number of sites that were not stored.")
    known: Annotated[Count, Example(0)] = Field(description="Number of sites that were stored.")
    errors: Annotated[
        list[ImportFault],
        declared(maxItems=MAX_IMPORTED),
        Example([response_example(ImportFault)]),
    ]
    warning: Annotated[Line | None, Example(None)] = Field(
        None, description="Set if no worker is running."
    )
