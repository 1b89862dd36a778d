"""Every error is whole in itself and is listed in the reference."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from docs.generate import errors_page, own_errors


def test_every_error_has_a_code_of_its_own():
    codes = Counter(cls.code for cls in own_errors())
    assert codes
    assert [code for code, times in codes.items() if times > 1] == []
    assert [cls.__name__ for cls in own_errors() if "code" not in vars(cls)] == []


def test_every_error_has_a_default_message():
    silent = [cls.__name__ for cls in own_errors() if not (vars(cls).get("__doc__") or "").strip()]
    assert silent == []


def test_the_default_message_is_one_line_of_plain_text_without_the_name_of_the_class():
    messages = {cls.__name__: cls().message for cls in own_errors()}
    assert [name for name, text in messages.items() if "\n" in text or "  " in text] == []
    assert [name for name, text in messages.items() if name in text or "`" in text] == []


def test_a_message_of_its_own_replaces_the_default():
    kept = [cls.__name__ for cls in own_errors() if cls("Just this.").message != "Just this."]
    assert kept == []


def test_the_reference_lists_every_code(project: Path):
    page = (project / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert [cls.code for cls in own_errors() if f"| `{cls.code}` |" not in page] == []


@pytest.mark.criterion("docs-correct")
def test_the_reference_of_errors_is_up_to_date(project: Path):
    page = (project / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert page == errors_page(), "run: make docs"
