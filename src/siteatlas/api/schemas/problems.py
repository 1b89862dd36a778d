"""The model of problem details (RFC 9457)."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    AnswerShape,
    Count,
    Line,
    SmallCount,
    Word,
    declared,
    examples,
)
from siteatlas.insights.pages import MAX_CURSOR_CHARS

NOT_FOUND = {
    "type": "urn:siteatlas:error:job_not_found",
    "title": "There is no job with this id.",
    "status": 404,
    "detail": "There is no job with this id.",
    "instance": "/api/v3/jobs/42",
    "code": "job_not_found",
    "request_id": "5f0c1f6f4c1e4a0e9b7c2d1a8e6f3b90",
}
INVALID = NOT_FOUND | {
    "type": "urn:siteatlas:error:input_invalid",
    "title": "The request contains an invalid value.",
    "status": 422,
    "detail": "The request contains an invalid value.",
    "instance": "/api/v3/sitemap/scan",
    "code": "input_invalid",
    "errors": [
        {"in": "body", "pointer": "#/base_url", "code": "missing", "message": "Field required"}
    ],
}


class FieldProblem(AnswerShape):
    """One invalid value: where it is and what is wrong with it."""

    place: Annotated[str, declared(enum=["body", "query", "path", "header", "cookie"])] = Field(
        alias="in", description="The part of the request that contains the value."
    )
    pointer: Line = Field(description="A JSON pointer into that part, such as `#/limit`.")
    code: Word
    message: Line


class Problem(AnswerShape):
    """Why a request failed; `code` is stable, `title` and `detail` are for people."""

    model_config = ConfigDict(json_schema_extra=examples(NOT_FOUND, INVALID))

    type: Line
    title: Line
    status: SmallCount
    detail: Annotated[str, declared(maxLength=4000)]
    instance: Annotated[str, declared(maxLength=65_536)]
    code: Word
    request_id: Word | None
    errors: Annotated[list[FieldProblem], declared(maxItems=100)] | None = Field(
        None, description="The invalid values, if known."
    )
    earliest_cursor: Annotated[str, declared(maxLength=MAX_CURSOR_CHARS)] | None = Field(
        None, description="With `cursor_expired`: the oldest position in the change feed."
    )
    earliest_seq: Count | None = Field(
        None, description="With `past_state_unavailable`: the first number that can be asked for."
    )
