"""The messages between a scan and its reader processes, over one socket for each process.

A message is a head, a pickled value and raw bytes; each may be empty but the head. The pickles come
from processes of the same command only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from siteatlas.errors import ScanError
from siteatlas.net.address import WebAddress
from siteatlas.scanner.events import ChildLink, EncodedEntries, EntriesRead, SitemapType
from siteatlas.scanner.reading.content_hash import ContentHash
from siteatlas.scanner.reading.tally import Tally

# The number of the document, the kind, and the sizes of the value and of the bytes.
HEAD = Struct("<IBII")

EncodeEntries = Callable[[EntriesRead], EncodedEntries]


class MessageKind(IntEnum):
    """What a message says about its document.

    To the process: `open`, then `data`, then `end`, or `fault` if the transfer failed; `drop` if
    nobody waits for the document any more. From the process: `result`, then `summary`.
    """

    OPEN = 1
    DATA = 2
    END = 3
    FAULT = 4
    DROP = 5
    RESULT = 6
    SUMMARY = 7


class MessageHead(NamedTuple):
    """The document and the kind of a message, and how many bytes follow."""

    document: int
    kind: int
    value_size: int
    data_size: int


class DocumentTask(NamedTuple):
    """What a reader process must know of a document; it may be of any site of the command."""

    address: WebAddress
    content_encoding: str | None
    charset: str | None
    site_host: str
    anywhere: bool
    find_duplicates: bool
    encode: EncodeEntries


class RemoteResult(NamedTuple):
    """Some of what a reader process has read from a document."""

    type: SitemapType | None
    children: list[ChildLink]
    entries: EncodedEntries | None


@dataclass(slots=True)
class ReadSummary:
    """The state of a document in a reader process, with the attributes of a `DocumentReader`.

    Complete after the last message only; before that, the type at most is known.
    """

    type: SitemapType | None = None
    tally: Tally = field(default_factory=Tally)
    wire_bytes: int = 0
    decoded_bytes: int = 0
    is_window: bool = False
    shows_its_end: bool = False
    hashes: ContentHash = ContentHash("", "")
    error: ScanError | None = None

    def content_hash(self) -> ContentHash:
        """The hashes of the document."""
        return self.hashes


def message(document: int, kind: MessageKind, value: object = None, data: bytes = b"") -> bytes:
    """A message as bytes."""
    pickled = b"" if value is None else pickle.dumps(value)
    return HEAD.pack(document, kind, len(pickled), len(data)) + pickled + data


def read_head(head: bytes) -> MessageHead:
    """The head of a message."""
    return MessageHead(*HEAD.unpack(head))


def read_value(pickled: bytes) -> Any:
    """The value of a message."""
    return pickle.loads(pickled) if pickled else None  # noqa: S301 from our own process
