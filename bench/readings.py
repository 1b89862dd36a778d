"""The loop that every reader of the corpus runs: questions from stdin, answers to stdout, as JSON.

Uses the standard library alone, because it runs inside the environments of the peers.
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
    """A document at a loopback address, with the address that it stands for.

    `kind` is `robots`, `index`, `feed` or `pages`; `expected` is only for those who write every
    address in a form of their own.
    """

    id: str
    kind: str
    url: str
    stands_for: str
    expected: list[str]


@dataclass(slots=True)
class Answer:
    """What a reader found; `either` when it does not tell pages from children.

    `forms` gives expected addresses in the form that the reader writes all addresses in.
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
