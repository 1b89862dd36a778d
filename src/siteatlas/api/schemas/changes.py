"""Models of the change feed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from siteatlas.api.schemas.base import QueryShape, TagFilter, list_pattern
from siteatlas.catalog.change_feed import KINDS
from siteatlas.catalog.views import MAX_BIGINT


class CompareQuery(QueryShape):
    """Which scans to compare."""

    from_scan: int = Field(
        alias="from", ge=1, le=MAX_BIGINT, description="The id of the earlier scan."
    )
    to_scan: int = Field(alias="to", ge=1, le=MAX_BIGINT, description="The id of the later scan.")


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
