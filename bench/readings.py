"""The loop that every reader of the corpus runs: questions from stdin, answers to stdout, as JSON.

Uses only the standard library, because it runs inside the environments of the peers.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from urllib.request import urlopen

SECONDS_TO_FETCH = 10


@dataclass(frozen=True, slots=True)
class Question:
    """A document at a loopback address; `original_url` is its address in the corpus.

    `kind` is `robots`, `index`, `feed` or `pages`; `expected` is only for readers that normalize
    every address.
    """

    id: str
    kind: str
    url: str
    original_url: str
    expected: list[str]


@dataclass(slots=True)
class Answer:
    """What a reader found; `either` if it does not distinguish pages from children.

    `forms` maps expected addresses to the form to which the reader normalizes them.
    """

    pages: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    either: list[str] = field(default_factory=list)
    forms: dict[str, str] = field(default_factory=dict)
    error: str = ""


def fetch(url: str) -> bytes:
    """The bytes of a document, as they come."""
    with urlopen(url, timeout=SECONDS_TO_FETCH) as answer:  # noqa: S310 - our own address
        return bytes(answer.read())


def answer_all(read: Callable[[Question], Answer]) -> None:
    """Let `read` answer every question of stdin; what it raises is an answer too."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    questions = [Question(**question) for question in json.load(sys.stdin)]
    answers = {question.id: asdict(_answer(read, question)) for question in questions}
    json.dump(answers, sys.stdout)


def _answer(read: Callable[[Question], Answer], question: Question) -> Answer:
    try:
        return read(question)
    except Exception as error:  # noqa: BLE001 - whatever a reader raises is its answer
        return Answer(error=f"{type(error).__name__}: {error}"[:200])
