"""Runs Siteatlas and its peers on tests/corpus, prints a table and generates the page."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench.conformance_page import grades_table, page, topics_table
from bench.grades import Grade, grade
from bench.peers import peer_python, pinned, run_reader
from bench.readings import Answer, Question
from bench.serve_command import free_port
from bench.site_server import served
from tests.corpus.cases import ORIGIN, Case, load_cases

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "reference" / "conformance.md"
SECONDS_TO_READ = 300
# The name in the table, the module that reads, the requirement (none for ourselves).
READERS = {
    "Siteatlas": ("our_documents", None),
    "ultimate-sitemap-parser": ("usp_documents", "ultimate-sitemap-parser"),
    "Scrapy": ("scrapy_documents", "scrapy"),
    "advertools": ("advertools_documents", "advertools"),
    "trafilatura": ("trafilatura_documents", "trafilatura"),
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument(
        "--dry", action="store_true", help="do not write the page of the documentation"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write grades and answers to FILE"
    )
    return parser.parse_args()


def copy_documents(cases: Sequence[Case], site: Path) -> None:
    """Copy the documents to the paths at which the site serves them."""
    (site / "robots.txt").touch()
    for case in cases:
        file = site / case.path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(case.file, file)


def question(case: Case, base_url: str) -> Question:
    path = "/robots.txt" if case.kind == "robots" else case.path
    return Question(
        id=case.id,
        kind="feed" if {".rss", ".atom"} & set(case.file.suffixes) else case.kind,
        url=base_url + case.path,
        original_url=ORIGIN + path,
        expected=case.addresses,
    )


def read_corpus(name: str, folder: Path, questions: Sequence[Question]) -> dict[str, Answer]:
    """Let one reader read all documents, in its own environment."""
    print(f"{name} is reading ...", file=sys.stderr, flush=True)
    module, requirement = READERS[name]
    python = peer_python(folder, requirement) if requirement else Path(sys.executable)
    given = json.dumps([asdict(question) for question in questions])
    printed = run_reader(python, module, given=given, limit=SECONDS_TO_READ)
    return {case: Answer(**answer) for case, answer in json.loads(printed).items()}


def versions() -> dict[str, str]:
    return {
        name: pinned(requirement).partition("==")[2] if requirement else version("siteatlas")
        for name, (_, requirement) in READERS.items()
    }


def write_json(
    file: Path,
    grades: Mapping[str, Mapping[str, Grade]],
    answers: Mapping[str, Mapping[str, Answer]],
) -> None:
    data = {
        name: {
            case: {"grade": given, **asdict(answers[name][case])}
            for case, given in of_reader.items()
        }
        for name, of_reader in grades.items()
    }
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    chosen = options()
    cases = [case for case in load_cases() if not case.is_policy]
    folder = Path(tempfile.gettempdir()) / "siteatlas-bench"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as site:
        copy_documents(cases, Path(site))
        with served(Path(site), free_port()) as server:
            base_url = server.base_url
            questions = [question(case, base_url) for case in cases]
            answers = {name: read_corpus(name, folder, questions) for name in READERS}
    grades = {
        name: {case.id: grade(case, of_reader[case.id], base_url) for case in cases}
        for name, of_reader in answers.items()
    }
    print(topics_table(cases, grades), grades_table(grades), sep="\n\n")
    if chosen.json:
        write_json(chosen.json, grades, answers)
    if not chosen.dry:
        PAGE.write_text(page(cases, grades, versions()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
