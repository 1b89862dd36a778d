"""The parameters of an export."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import TagFilter
from siteatlas.api.schemas.changes import KindsFilter
from siteatlas.api.schemas.urls import PastMoment, UrlFilters
from siteatlas.export.columns import Exported
from siteatlas.export.encoding import ExportFormat
from siteatlas.insights.pages import MAX_BIGINT


class ExportQuery(PastMoment, UrlFilters, KindsFilter):
    """What to export, and in which format. The filters of URLs do not apply to changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: Exported = Field(
        Exported.URLS,
        description="The URLs, or their changes. `after` and `kinds` apply to changes only.",
    )
    format: ExportFormat = Field(
        ExportFormat.CSV, description="`parquet` needs the extra `parquet` on the server."
    )
    after: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="Only changes after this number. Without it, all that are retained.",
    )


class AllExportQuery(ExportQuery, TagFilter):
    """What to export of all sites, or of those with a tag."""
