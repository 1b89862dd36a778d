"""Which agent may fetch what by a robots.txt, and what it says about the use of content."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.findings.policies import (
    CLOSED,
    OPENED,
    Agent,
    Policy,
    Purpose,
    Usage,
    compare_access,
    known_agents,
    path_of,
)
from siteatlas.scanner.discovery.robots import MAX_BYTES, parse_robots, robots_text
from tests.fixtures.timings import measured

OUR_AGENT = "Siteatlas/0.1 (sitemap reader)"


def agent(name: str) -> Agent:
    return known_agents().find(name)


def answer(text: str, name: str, path: str) -> tuple[bool, int | None]:
    rule, _ = Policy(text).decide(agent(name), path)
    return (True, None) if rule is None else (rule.allow, rule.line)


def test_every_purpose_has_agents_and_every_agent_one_purpose():
    agents = known_agents().agents
    assert {one.purpose for one in agents} == set(Purpose)
    names = [one.name.lower() for one in agents]
    assert len(names) == len(set(names)) >= 40
    assert known_agents().as_of >= date(2026, 8, 22)
    assert agent("gptbot/1.2 (+https://a.example)").operator == "OpenAI"
    assert agent("NewBot").purpose is None


FILE = """\
User-agent: *
Disallow: /private/
Allow: /private/open/
Disallow: /*.pdf$

User-agent: GPTBot
User-agent: ccbot
Disallow: /

User-agent: Googlebot
Disallow: /a
Allow: /a
"""


@pytest.mark.parametrize(
    ("name", "path", "decision"),
    [
        ("Bingbot", "/", (True, None)),
        ("Bingbot", "/private/x", (False, 2)),
        ("Bingbot", "/private/open/x", (True, 3)),
        ("Bingbot", "/x.pdf", (False, 4)),
        ("Bingbot", "/x.pdf?y", (True, None)),
        ("GPTBot", "/anything", (False, 8)),
        ("GPTBot", "/robots.txt", (True, None)),
        ("CCBot", "/", (False, 8)),
        ("Googlebot", "/a", (True, 12)),
        ("Googlebot", "/private/x", (True, None)),
    ],
)
def test_the_most_specific_group_and_its_longest_rule_decide(
    name: str, path: str, decision: tuple[bool, int | None]
):
    assert answer(FILE, name, path) == decision


def test_an_agent_follows_the_groups_of_its_family_if_it_has_none_of_its_own():
    assert answer(FILE, "Googlebot-Image", "/private/x") == (True, None)
    own = FILE + "User-agent: Googlebot-Image\nDisallow: /private\n"
    assert answer(own, "Googlebot-Image", "/private/x") == (False, 14)
    policy = Policy(FILE)
    assert policy.group_for(agent("Googlebot-Image")) == "googlebot"
    assert policy.group_for(agent("Bingbot")) == "*"
    assert Policy("").group_for(agent("Bingbot")) is None


def test_rules_with_the_other_answer_below_a_path_are_counted():
    policy = Policy(FILE)
    assert policy.decide(agent("Bingbot"), "/")[1] == 2
    assert policy.decide(agent("Bingbot"), "/private/")[1] == 1
    assert policy.decide(agent("Bingbot"), "/other/")[1] == 0


def test_the_deciding_line_is_shown_as_written():
    text = "# first\r\n  User-agent : *\rDisallow:/é  # why\n"
    rule, _ = Policy(text).decide(agent("Bingbot"), "/%C3%A9")
    assert rule is not None
    assert (rule.line, Policy(text).line(rule.line)) == (3, "Disallow:/é  # why")


def test_agents_with_the_same_rules_share_their_answers():
    text = "".join(f"User-agent: {name}\nDisallow: /a\n" for name in ("GPTBot", "CCBot", "*"))
    wanted = [agent(name) for name in ("GPTBot", "CCBot", "Bingbot")]
    found = Policy(text).rules_for(wanted, ["/a", "/b"])
    assert found["GPTBot"] is found["CCBot"] is found["Bingbot"]
    assert [rule and rule.allow for rule in found["GPTBot"]] == [False, None]


LINES = st.sampled_from(
    [
        *("User-agent: *", "User-agent: Siteatlas", "User-agent: siteatlas/2", "User-agent: Other"),
        *(
            "Disallow: /",
            "Disallow: /a",
            "Allow: /a/b",
            "Disallow: /*b$",
            "Allow: /a*",
            "Allow: /é",
        ),
        *("Disallow:", "Content-Signal: search=no", "Crawl-delay: 2", "# /", "Disallow: /%61"),
        *("Sitemap: /s", "nonsense", "Disallow /b", "Disallow: /a\u2028b"),
    ]
)
PATHS = ["/", "/a", "/a/b", "/b", "/ab", "/robots.txt", "/%C3%A9", "/a?b", "/a\u2028b"]


@given(st.lists(LINES, max_size=14), st.sampled_from(["\n", "\r\n", "\r"]))
def test_for_our_own_agent_the_answer_is_what_the_scanner_decides(lines: list[str], end: str):
    content = end.join(lines).encode()
    policy, scanner = Policy(robots_text(content)), parse_robots(content)
    for path in PATHS:
        rule, _ = policy.decide(Agent(OUR_AGENT), path)
        assert rule == scanner.rule_for(OUR_AGENT, path)


def usages(*lines: str) -> list[Usage]:
    return Policy("\n".join(lines)).usages()


def test_signals_belong_to_the_agents_named_before_them():
    found = usages(
        "User-agent: A",
        "Content-Signal: search=yes, ai-input=no, ai-train=no, use=reference",
        "User-agent: B",
        "User-agent: c",
        "Content-Usage: /x train-ai=n;why=1, bots=y",
        "Content-Usage: search=y",
        "Disallow: /y",
    )
    assert [(one.line, one.agents, one.path, one.values) for one in found] == [
        (2, ["a"], None, {"search": "yes", "ai-input": "no", "ai-train": "no", "use": "reference"}),
        (5, ["b", "c"], "/x", {"train-ai": "n", "bots": "y"}),
        (6, ["b", "c"], None, {"search": "y"}),
    ]
    assert [one.invalid + one.contradicts for one in found] == [[], [], []]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Content-Signal: ai_train=no", "“ai_train” is not a known signal."),
        ("Content-Signal: search=maybe", "“search=maybe”: the value must be yes or no."),
        ("Content-Signal: search", "“search” is not of the form name=value."),
        ("Content-Usage: train-ai=no", "“train-ai=no”: the value must be y or n."),
        ("Content-Signal:", "A value is empty."),
    ],
)
def test_what_cannot_be_read_of_a_signal_is_named(line: str, fault: str):
    (found,) = usages("User-agent: *", line)
    assert found.invalid == [fault]
    assert found.values == {}


def test_no_more_values_of_a_line_are_read_than_anybody_needs():
    (found,) = usages("User-agent: *", "Content-Usage: " + ",".join(f"a{n}=y" for n in range(21)))
    assert len(found.values) == 20
    assert found.invalid == ["Only the first 20 values are read."]


def test_a_signal_before_all_agents_is_for_nobody():
    (found,) = usages("Content-Signal: search=yes", "User-agent: *")
    assert found.invalid == [
        "It stands before the first User-agent line, so it applies to no agent."
    ]


def test_signals_that_say_the_opposite_contradict_each_other():
    *_, last = usages(
        "User-agent: *", "Content-Signal: ai-train=no", "Content-Usage: /a train-ai=y"
    )
    assert last.contradicts == []
    *_, last = usages("User-agent: *", "Content-Signal: ai-train=no", "Content-Usage: train-ai=y")
    assert last.contradicts == ["train-ai=y contradicts ai-train=no in line 2."]
    (one,) = usages("User-agent: *", "Content-Signal: search=yes, search=no")
    assert one.contradicts == ["search=no contradicts search=yes in line 2."]


def test_a_signal_contradicts_rules_that_let_nothing_be_fetched():
    lines = ["User-agent: GPTBot", "Content-Signal: ai-train=yes, search=no", "Disallow: /"]
    assert usages(*lines)[0].contradicts == [
        "ai-train=yes, but line 3 lets the agent fetch nothing."
    ]
    assert usages(*lines, "Allow: /open/")[0].contradicts == []
    others = ["User-agent: *", lines[1], "Disallow: /a", "User-agent: B", lines[2]]
    assert usages(*others)[0].contradicts == []


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/a?b=1#c", "/a?b=1"),
        ("https://a.example/b?c", "/b?c"),
        ("https://a.example", "/"),
        ("https://a.example?x", "/?x"),
        ("a", "/a"),
        ("", "/"),
        ("/go?to=https://b.example/", "/go?to=https://b.example/"),
    ],
)
def test_rules_are_compared_with_path_and_query(address: str, path: str):
    assert path_of(address) == path


def changes(before: str, after: str, *sections: str) -> list[tuple[str, set[str], tuple[str, ...]]]:
    wanted = [agent(name) for name in ("Googlebot", "Bingbot", "GPTBot")]
    found = compare_access(before, after, sections, wanted)
    return [(one.code, {each.name for each in one.agents}, one.paths) for one in found]


def test_an_agent_that_is_shut_out_and_let_in_again_is_named():
    before, after = "User-agent: *\nAllow: /\n", "User-agent: GPTBot\nDisallow: /\n"
    assert changes(before, after) == [(CLOSED, {"GPTBot"}, ("/",))]
    assert changes(after, before) == [(OPENED, {"GPTBot"}, ("/",))]
    assert changes("", before) == []
    named = compare_access(before, after)
    assert [each.name for each in named[0].agents] == ["GPTBot"]


def test_sections_and_rules_whose_answer_changes_are_named():
    before = "User-agent: *\nDisallow: /old/\nDisallow: /same/\n"
    after = "User-agent: *\nDisallow: /*.pdf$\nDisallow: /s\nDisallow: /same/\n"
    every = {"Googlebot", "Bingbot", "GPTBot"}
    assert changes(before, after, "/shop/", "/old/", "/blog/") == [
        (CLOSED, every, ("/s", "/*.pdf$")),
        (OPENED, every, ("/old/",)),
    ]


def test_agents_whose_access_changes_in_the_same_way_are_named_together():
    after = "User-agent: GPTBot\nUser-agent: Bingbot\nDisallow: /a\nUser-agent: *\nAllow: /\n"
    assert changes("User-agent: *\nAllow: /\n", after) == [(CLOSED, {"Bingbot", "GPTBot"}, ("/a",))]


def test_rules_that_move_or_say_the_same_change_nothing():
    before = "User-agent: *\nDisallow: /a\nDisallow: /b\n"
    after = "# new\nUser-agent: *\nDisallow: /b\nDisallow: /b/c\nDisallow: /a\n"
    assert changes(before, after, "/a/") == []


@pytest.mark.parametrize(
    "text",
    [
        "User-agent: *\n" * 12_000 + "Content-Signal: search=yes\n" * 12_000,
        "".join(f"User-agent: {n}\nContent-Signal: a=b\n" for n in range(12_000)),
        "User-agent: *\n" + "".join(f"Disallow: /{n}*x\n" for n in range(25_000)),
        "".join(f"User-agent: {n}\n" for n in range(100))
        + f"Content-Usage: {','.join(f'a{n}=y' for n in range(2_000))}\n" * 30,
    ],
    ids=["one group", "many groups", "many rules", "many values"],
)
def test_a_text_that_is_long_on_purpose_takes_no_time(text: str):
    assert len(text) < MAX_BYTES
    started = time.perf_counter()
    assert len(Policy(text).usages()) <= 200
    compare_access(text, text[: len(text) // 2])
    measured(time.perf_counter() - started, 5)
