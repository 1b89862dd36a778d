"""SQL conditions for lists that are filtered by a tag of the site."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Text, cast, select
from sqlalchemy.dialects.postgresql import ARRAY, array

from siteatlas.storage.models import Domain


def has_tag(tag: Any) -> ColumnElement[bool]:
    """SQL condition: a site has a tag; through an index if few sites have it."""
    return Domain.tags.contains(cast(array([tag]), ARRAY(Text())))


def tagged_domains(tag: Any) -> Select[UUID]:
    """The ids of the sites that have a tag."""
    return select(Domain.id).where(Domain.deleted_at.is_(None), has_tag(tag))
