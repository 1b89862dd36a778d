"""Every code that a page gives advice for exists, and every error has a meaning."""

from __future__ import annotations

from siteatlas.errors import NoSitemap
from siteatlas.scanner.problem_codes import meaning_of
from siteatlas.web.templating import ADVICE, explain


def test_advice_is_given_for_codes_that_exist():
    assert [code for code in ADVICE if meaning_of(code) is None] == []


def test_an_error_is_explained_by_its_message():
    explanation = explain(NoSitemap.code)
    assert explanation is not None
    assert explanation.meaning == NoSitemap().message


def test_without_a_code_there_is_nothing_to_explain():
    assert explain(None) is None
