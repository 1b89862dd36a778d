"""Writes the page of the documentation that compares the readers, from their grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bench.grades import Grade, exact_by_topic
from tests.corpus.cases import Case

INTRODUCTION = """\
# Conformance

How well Siteatlas and four other readers read the documents of `tests/corpus/`: small files written
by us, each with what its author meant. `make conformance` generates this page; the peers run in
separate environments, in the versions below.

Each document is served on loopback. A reader reads it **exactly** when it finds all addresses that
the document lists, in the form in which it lists them (entities decoded, outer blanks trimmed), and
no others. Order and repetition do not count. A document that is no sitemap is read exactly by
finding nothing in it, with or without an error.

For a fair comparison:

- We wrote the corpus. It is made of the faults that users of all these tools report, and of the
  features that the tools claim. Expectations come from the protocol and from our rules. After the
  first run some feeds got the titles they lacked, four files moved to another topic and one was
  split, so that each has one fault only; no expected address was changed.
- Siteatlas is developed against this corpus, the peers have never seen it. At first it read 262 of
  the 273 documents exactly (3 of 11 in `malformed`); its reader was fixed afterwards. So the
  figures say which faults a reader copes with, not how it would do on files unknown to all.
- Documents where the right answer is a rule of Siteatlas (addresses that cannot be stored, entity
  declarations) are part of our tests and are not counted here.
- Only addresses are compared. Dates and extensions are not, although some readers deliver them.
- Scrapy and advertools do not claim to read plain text and feeds. trafilatura reads feeds with
  another function than sitemaps; that function is used for them.
- trafilatura cleans every address. The expected addresses are cleaned in the same way before they
  are compared. Its protection against loopback addresses and its filter for other hosts are
  switched off.
- No links are followed: for an index and for robots.txt, the addresses of the children count.
"""
NOT_CLAIMED_BY_ALL = ("feeds", "text")
GRADES_NOTE = """\
**part**: some of the addresses and no wrong ones. **wrong**: addresses that are not listed, such as
truncated, joined or garbled ones. **fails**: nothing, where something is listed.
"""


def page(
    cases: Sequence[Case],
    grades: Mapping[str, Mapping[str, Grade]],
    versions: Mapping[str, str],
) -> str:
    """The whole page as Markdown."""
    parts = [
        INTRODUCTION,
        f"## Documents read exactly\n\n{topics_table(cases, grades)}\n",
        f"## All grades\n\n{GRADES_NOTE}\n{grades_table(grades)}\n",
        f"## Versions\n\n{versions_table(versions)}\n",
        "## What each reader misses\n",
        *(missed(name, grades[name]) for name in grades),
    ]
    return "\n".join(parts)


def topics_table(cases: Sequence[Case], grades: Mapping[str, Mapping[str, Grade]]) -> str:
    """One row a topic, one column a reader."""
    totals = Counter(case.topic for case in cases)
    exact = {name: exact_by_topic(cases, of_reader) for name, of_reader in grades.items()}
    rows = [
        [topic, *(f"{exact[name][topic]} of {total}" for name in grades)]
        for topic, total in sorted(totals.items())
    ]
    sums = [
        [f"**{title}**", *(_sum(exact[name], totals, left_out) for name in grades)]
        for title, left_out in (("all", ()), ("all but feeds and text", NOT_CLAIMED_BY_ALL))
    ]
    return markdown_table(["topic", *grades], [*rows, *sums])


def _sum(exact: Counter[str], totals: Counter[str], left_out: Sequence[str]) -> str:
    topics = totals.keys() - left_out
    return f"**{sum(exact[topic] for topic in topics)} of {sum(totals[t] for t in topics)}**"


def grades_table(grades: Mapping[str, Mapping[str, Grade]]) -> str:
    """One row a grade, one column a reader."""
    counts = {name: Counter(of_reader.values()) for name, of_reader in grades.items()}
    rows = [[grade, *(str(counts[name][grade]) for name in grades)] for grade in Grade]
    return markdown_table(["grade", *grades], rows)


def versions_table(versions: Mapping[str, str]) -> str:
    """The version of each reader."""
    return markdown_table(["reader", "version"], [[name, text] for name, text in versions.items()])


def missed(name: str, grades: Mapping[str, Grade]) -> str:
    """What one reader does not read exactly, by grade and topic."""
    lines = [f"### {name}\n"]
    for grade in (Grade.PART, Grade.WRONG, Grade.FAILS):
        found = [case for case, given in grades.items() if given is grade]
        if found:
            lines.append(f"- **{grade}** ({len(found)}): {by_topic(found)}")
    return "\n".join([*(lines if len(lines) > 1 else [*lines, "Nothing."]), ""])


def by_topic(ids: Sequence[str]) -> str:
    """Names of cases, gathered under their topics."""
    topics: dict[str, list[str]] = {}
    for case in ids:
        topic, _, name = case.partition("/")
        topics.setdefault(topic, []).append(name)
    return "; ".join(f"{topic}: {', '.join(names)}" for topic, names in topics.items())


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
