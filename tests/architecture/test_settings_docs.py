"""Every setting is listed in the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import settings_page
from siteatlas.settings import DECLARATIONS, environment_name


@pytest.fixture
def page(project: Path) -> str:
    return (project / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")


def test_the_reference_lists_every_setting(page: str):
    missing = [name for name in DECLARATIONS if f"`{environment_name(name)}`" not in page]
    assert missing == []


@pytest.mark.criterion("docs-correct")
def test_the_reference_of_settings_is_up_to_date(page: str):
    assert page == settings_page(), "run: make docs"
