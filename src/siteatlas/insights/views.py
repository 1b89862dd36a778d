"""Reading views: a view names its fields, and the statement that reads it follows from them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import QueryableAttribute

from siteatlas.storage.models import Base

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
