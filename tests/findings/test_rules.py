"""The list of rules is complete, short and consistent with the codes of problems and errors."""

from __future__ import annotations

import re

from siteatlas.errors import ScanError, error_classes
from siteatlas.findings.rules import Severity, all_rules, rule_named, rule_of
from siteatlas.scanner.problem_codes import ProblemCode

HISTORY = {
    *("sitemap-validators-unstable", "index-lastmod-lags", "index-lastmod-always-now"),
    *("lastmod-always-now", "lastmod-backwards", "lastmod-without-change", "lastmod-untrusted"),
    *("changefreq-contradicts-history", "window-overrun", "mass-removal-held"),
    *("sitemap-vanished", "url-flapping", "count-collapsed", "robots-opened", "robots-closed"),
}
# They say what a scan was told to do, or where it ended; the site is not to blame.
WITHOUT_RULE = {
    *("resource_deleted", "url_limit", "document_limit", "cross_host_cap", "sitemap_line_limit"),
    *("sitemaps_filtered", "duplicate", "robots_disallowed", "unchanged", "done_before"),
    *("filtered_address", "filtered_date", "not_asked", "not_fetched"),
    *("scan_failed", "partial_scan", "scan_stalled", "scan_timeout", "header_not_sent"),
    *("foreign_host_limit", "proxy_failed"),
}


def test_there_are_at_least_90_rules_and_all_that_need_history():
    rules = all_rules()
    assert len(rules) >= 90
    assert {code for code, rule in rules.items() if "history" in rule.needs} == HISTORY
    assert "url-disallowed" in rules


def test_a_rule_is_said_in_a_few_whole_sentences():
    needs = {"document", "site", "history", "robots", "clock", "pages"}
    for rule in all_rules().values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.code)
        assert rule.title.startswith("`") or rule.title[0].isalnum()
        assert not rule.title.endswith(".")
        assert len(rule.title) <= 80, rule.code
        for sentence in (rule.why, rule.fix):
            assert sentence.endswith(".")
            assert len(sentence) <= 120, rule.code
        assert rule.stated_by
        assert rule.needs
        assert needs.issuperset(rule.needs)


def test_a_rule_that_lint_judges_needs_neither_history_nor_pages():
    wrong = [
        rule.code
        for rule in all_rules().values()
        if rule.lint and {"history", "pages"} & set(rule.needs)
    ]
    assert wrong == []


def test_every_problem_and_every_error_of_a_scan_has_one_rule_or_a_reason_to_have_none():
    errors = {error.code for error in error_classes() if issubclass(error, ScanError)}
    covered = [code for rule in all_rules().values() for code in rule.covers]
    assert len(set(covered)) == len(covered)
    assert set(covered) | WITHOUT_RULE == {code.value for code in ProblemCode} | errors
    assert set(covered) & WITHOUT_RULE == set()


def test_our_own_limit_of_a_url_is_another_rule_than_that_of_the_protocol():
    assert rule_of(ProblemCode.URL_LONG) == "url-too-long"
    assert rule_of(ProblemCode.URL_TOO_LONG) == "url-over-8192"
    assert rule_of(None) is None


def test_a_rule_can_be_named_by_the_code_of_its_problem_or_error():
    assert rule_named("url-twice") == rule_named("duplicate_url") == all_rules()["url-twice"]
    assert rule_named("xml_malformed") == all_rules()["xml-malformed"]
    assert rule_named("url_limit") is None


def test_severities_are_ordered_by_consequence():
    assert Severity.NOTE < Severity.of("warning") < Severity.ERROR
    assert Severity.ERROR.word == "error"
