"""Views: what is stored, as users see it. A view is also the answer of the API.

A view is a frozen dataclass. Its fields name the columns of the statement that reads it
(`select_view`); their annotations say what the OpenAPI document says about them. The limits of
answers are declared and not enforced: an answer must never fail validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict
from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import QueryableAttribute

from siteatlas.scanner.events import SitemapType
from siteatlas.storage.models import Base, JobStatus

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_INT = 2**31 - 1
MIN_BIGINT = -(2**63)
MAX_BIGINT = 2**63 - 1
MAX_ADDRESS_CHARS = 2048

SITEMAP_COUNT = (
    "Number of documents that were read completely or in part, including indexes. Documents of "
    "which nothing could be read are not counted, but are listed as `failed`."
)


class Shown:
    """The ids and times that the examples of all answers share."""

    job_id = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"
    domain_id = "7f1f7c4e-52a9-4a55-8a4e-0a3c1b7f9d20"
    sitemap_id = "3b9a8d52-1f64-4f0e-9d7c-6e2b8c1a4f35"
    batch_id = "c2a41e0b-9f1d-4c52-8f7b-2e6d5a8b9c03"
    user_id = "5905e9fe-6c61-4694-b09a-6602017b000a"
    key_id = "k3m9qa7d"
    webhook_id = "b7e0c3a4-5d18-4c0e-9a41-2f6f0d7c8e13"
    noon = "2025-11-15T12:00:00Z"
    later = "2025-11-15T12:00:04Z"


@dataclass(frozen=True, slots=True)
class Example:
    """The value that a field has in the example of its answer."""

    value: Any


def view_example(view: type[DataclassInstance]) -> dict[str, Any]:
    """The OpenAPI example of a view, from the examples of its fields.

    A field without a value is null if it is always there, and left out if it is not.
    """
    hints = get_type_hints(view, include_extras=True)
    shown: dict[str, Any] = {}
    for field in fields(view):
        marks = getattr(hints[field.name], "__metadata__", ())
        values = [mark.value for mark in marks if isinstance(mark, Example)]
        if values or field.default is MISSING:
            shown[field.name] = values[0] if values else None
    return shown


def _describe(schema: JsonDict, view: type[DataclassInstance]) -> None:
    """Add to the schema of a view what its docstring says, its example, and all titles."""
    schema["description"] = cleandoc(view.__doc__ or "")
    shown: Any = schema["properties"]
    for name, shape in shown.items():
        if "$ref" not in str(shape):
            shape.setdefault("title", name.replace("_", " ").title())
    example = {name: value for name, value in view_example(view).items() if name in shown}
    if any(value is not None for value in example.values()):
        schema["examples"] = [example]


class View:
    """What all views inherit."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(json_schema_extra=_describe)


def select_view(
    view: type[DataclassInstance],
    model: type[Base],
    **others: ColumnElement[Any] | QueryableAttribute[Any],
) -> Select[*tuple[Any, ...]]:
    """One column per field, in the order of the fields: `view(*row)` is the view of a row.

    A field is the column of that name, unless `others` has an expression for it.
    """
    columns = (
        others[field.name].label(field.name) if field.name in others else getattr(model, field.name)
        for field in fields(view)
    )
    return select(*columns).select_from(model)


ViewT = TypeVar("ViewT", bound="DataclassInstance")


def extended(extension: type[ViewT], view: DataclassInstance, **more: Any) -> ViewT:
    """A view with more fields, of a class that inherits from the class of the view."""
    return extension(**{field.name: getattr(view, field.name) for field in fields(view)}, **more)


def declared(**bounds: Any) -> Any:
    """Bounds that appear in the schema and are not enforced."""
    return Field(json_schema_extra=bounds)


def one_of(words: Iterable[str]) -> Any:
    """The words of a closed set: generated clients get an enumeration of them."""
    return WithJsonSchema({"type": "string", "enum": [str(word) for word in words]})


Address = Annotated[str, declared(minLength=1, maxLength=MAX_ADDRESS_CHARS)]
Word = Annotated[str, declared(maxLength=64)]
Line = Annotated[str, declared(maxLength=500)]
Name = Annotated[str, declared(maxLength=300)]
Url = Annotated[str, declared(maxLength=8192)]
Paragraph = Annotated[str, declared(maxLength=10_000)]
Count = Annotated[int, declared(minimum=0, maximum=MAX_BIGINT, format="int64")]
SmallCount = Annotated[int, declared(minimum=0, maximum=MAX_INT, format="int32")]
Seconds = Annotated[float, declared(minimum=0)]
Share = Annotated[float, declared(minimum=0, maximum=1)]
FreeObject = dict[str, Any]
JobStatusWord = Annotated[JobStatus, one_of(JobStatus)]
SitemapTypeWord = Annotated[str, one_of(SitemapType)]
