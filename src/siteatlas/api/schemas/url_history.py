"""Models of the history of one URL."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from siteatlas.api.schemas.base import MAX_ADDRESS_CHARS, NO_NUL, PageAnswer, QueryShape, declared
from siteatlas.api.schemas.changes import ChangeAnswer
from siteatlas.api.schemas.urls import UrlAnswer
from siteatlas.insights.pages import MAX_CURSOR_CHARS, MAX_LIMIT


class UrlHistoryAnswer(PageAnswer[ChangeAnswer]):
    """The changes of one URL, newest first."""

    entries: Annotated[list[UrlAnswer], declared(maxItems=MAX_LIMIT)] = Field(
        description="Only on the first page: the URL in each sitemap that lists or listed it."
    )
    entries_cursor: Annotated[str, declared(maxLength=MAX_CURSOR_CHARS)] | None = Field(
        description="Not null if further sitemaps may list the URL, even if `entries` is empty: "
        "continue with `GET /api/v3/domains/{domain}/urls?url=…&state=all&cursor=…`."
    )


class UrlHistoryQuery(QueryShape):
    """The URL whose history to show."""

    url: str = Field(
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="The URL, exactly as listed.",
    )
