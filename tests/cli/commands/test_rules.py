"""`siteatlas rules`: the list, one rule, and a code that nobody knows."""

from __future__ import annotations

import json

import pytest

from siteatlas.cli.commands.rules import known_rule, rules
from siteatlas.errors import InputError
from siteatlas.findings.rules import all_rules


def test_the_list_has_every_rule_with_its_severity(capsys):
    rules(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(all_rules()) + 1
    assert any(line.split()[:2] == ["url-disallowed", "error"] for line in lines)


def test_one_rule_is_explained_also_by_the_code_of_its_problem(capsys):
    rules("lastmod_future", as_json=False)
    text = capsys.readouterr().out
    for part in ("lastmod-future", "warning", "in the future", "Check the clock"):
        assert part in text


def test_the_list_as_json_has_all_that_a_rule_says(capsys):
    rules("url-twice", as_json=True)
    (rule,) = json.loads(capsys.readouterr().out)["items"]
    assert rule["why"] == all_rules()["url-twice"].why
    assert rule["lint"] is True


def test_an_unknown_code_is_refused_with_a_way_to_the_list():
    with pytest.raises(InputError, match="siteatlas rules"):
        known_rule("url-wrong")
