"""Times in the filters of URLs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from siteatlas.api.schemas.urls import UrlFilters


@pytest.mark.parametrize("text", ["0.5", "1700000000", "-3", "1e9"])
def test_a_number_is_not_a_time(text: str):
    with pytest.raises(ValidationError):
        UrlFilters.model_validate({"lastmod_to": text})


@pytest.mark.parametrize("text", ["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00"])
def test_a_time_without_a_zone_is_in_utc(text: str):
    filters = UrlFilters.model_validate({"lastmod_to": text})
    assert filters.lastmod_to == datetime(2024, 1, 1, tzinfo=UTC)
