"""The file of a backup: a gzip-compressed tar archive, written and read in one pass.

`manifest.json` comes first, then the rows of each table as COPY wrote them, in parts, and
`end.json` last, without which the file is incomplete. What is in the tables is left to `writing`
and `restoring`.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Self

from siteatlas.errors import BackupInvalid, OutputFailed

FORMAT = 1
MANIFEST = "manifest.json"
END = "end.json"
PART_BYTES = 4 * 2**20
MAX_JSON_BYTES = 2**20
# Level 1 takes a third of the time of the default and makes files that are a quarter larger.
COMPRESSION = 1
OWNER_ONLY = 0o600
MAX_IDENTITY = 2**63 - 1
# The last six come from JSON that is not of the expected form.
DAMAGED = (
    tarfile.TarError,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table of a backup: its columns, and the last value of its identity column, if any."""

    name: str
    columns: tuple[str, ...]
    identity: tuple[str, int] | None = None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Read an entry of the manifest."""
        columns = tuple(map(_name, content["columns"]))
        identity = _identity(content["identity"], columns)
        return cls(_name(content["name"]), columns, identity)


def _text(value: Any) -> str:
    """A text of the manifest; TypeError if it is something else."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: Any) -> str:
    """The name of a table or column; ValueError if it cannot be one of ours."""
    name = _text(value)
    if not (name.isascii() and name.isidentifier()):
        raise ValueError
    return name


def _identity(value: Any, columns: tuple[str, ...]) -> tuple[str, int] | None:
    """The identity column and its last value, None without one; ValueError if it cannot be ours."""
    if value is None:
        return None
    column, last = value
    if column not in columns or not isinstance(last, int) or not 0 < last <= MAX_IDENTITY:
        raise ValueError
    return column, last


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup contains, and the schema revision and program version that it comes from."""

    revision: str
    version: str
    created_at: str
    tables: tuple[TableContents, ...]

    def to_json(self) -> bytes:
        """The first member of the archive."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Read the first member of the archive."""
        if content["format"] != FORMAT:
            raise BackupInvalid(
                f"The backup has the format {content['format']}, which this version of Siteatlas "
                "does not know. Restore it with the version that wrote it."
            )
        return cls(
            _text(content["revision"]),
            _text(content["version"]),
            _text(content["created_at"]),
            tuple(map(TableContents.from_json, content["tables"])),
        )


class ArchiveWriter:
    """Writes a backup; without `finish` the file stays invalid."""

    def __init__(self, file: BinaryIO, manifest: Manifest) -> None:
        self._gzip = gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|")  # noqa: SIM115 closed by finish
        self._rows: dict[str, int] = {}
        self._add(MANIFEST, manifest.to_json())

    def table(self, name: str) -> TableWriter:
        """Begin the rows of a table."""
        return TableWriter(name, self._add)

    def count(self, name: str, rows: int) -> None:
        """Note how many rows of a table were written."""
        self._rows[name] = rows

    def finish(self) -> dict[str, int]:
        """Write the end of the archive; returns the number of rows by table."""
        self._add(END, json.dumps({"rows": self._rows}).encode())
        with _write_faults():
            self._tar.close()
            self._gzip.close()
        return self._rows

    def _add(self, name: str, content: bytes) -> None:
        """Append one member."""
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), OWNER_ONLY
        with _write_faults():
            self._tar.addfile(member, io.BytesIO(content))


class TableWriter:
    """Collects what COPY sends for one table, in parts of `PART_BYTES`.

    A part may end within a row: COPY takes its data cut anywhere, and rows have no limit of size.
    """

    def __init__(self, name: str, add: Any) -> None:
        self._name = name
        self._add = add
        self._waiting = bytearray()
        self._parts = 0

    async def write(self, data: bytes) -> None:
        """Take rows; called by the driver."""
        self._waiting += data
        while len(self._waiting) >= PART_BYTES:
            self._write_part()

    def flush(self) -> None:
        """Write what is left."""
        if self._waiting:
            self._write_part()

    def _write_part(self) -> None:
        """Write a part, the last of which may be shorter."""
        self._parts += 1
        self._add(f"{self._name}/{self._parts:06}.copy", bytes(self._waiting[:PART_BYTES]))
        del self._waiting[:PART_BYTES]


class ArchiveReader:
    """Reads a backup in the order in which it was written; BackupInvalid if it is damaged."""

    def __init__(self, file: BinaryIO) -> None:
        with _damage():
            self._gzip = gzip.GzipFile(fileobj=file, mode="rb")
            self._tar = tarfile.open(  # noqa: SIM115 the caller closes the file
                fileobj=self._gzip, mode="r|"
            )
            self._next = self._tar.next()
            self.manifest = Manifest.from_json(self._json(MANIFEST))

    async def rows(self, table: str) -> AsyncIterator[bytes]:
        """What COPY wrote for this table, which must be the next one in the archive."""
        while self._next is not None and self._next.name.startswith(f"{table}/"):
            with _damage():
                part = self._take(2 * PART_BYTES)
            yield part

    def finish(self) -> dict[str, int]:
        """Read the end of the archive, and so its checksum: the number of rows by table."""
        with _damage():
            rows = {str(name): int(rows) for name, rows in self._json(END)["rows"].items()}
            # tarfile stops before the end of the file, where gzip compares the checksum.
            while self._gzip.read(PART_BYTES):
                pass
        return rows

    def _json(self, name: str) -> dict[str, Any]:
        """The next member, which must be the JSON object of this name."""
        if self._next is None or self._next.name != name:
            raise BackupInvalid
        content: dict[str, Any] = json.loads(self._take(MAX_JSON_BYTES))
        return content

    def _take(self, most: int) -> bytes:
        """The content of the next member; the one behind it becomes the next."""
        member = self._next
        if member is None or not member.isreg() or member.size > most:
            raise BackupInvalid
        file = self._tar.extractfile(member)
        assert file is not None
        content = file.read()
        if len(content) != member.size:
            raise BackupInvalid
        self._next = self._tar.next()
        return content


@contextmanager
def _write_faults() -> Iterator[None]:
    """Raise OutputFailed for a file that cannot be written.

    The driver, which calls from the middle of a COPY, would report a lost connection.
    """
    try:
        yield
    except OSError as error:
        raise OutputFailed(f"The backup cannot be written: {error.strerror or error}.") from error


@contextmanager
def _damage() -> Iterator[None]:
    """Raise BackupInvalid for the many errors by which a damaged archive shows."""
    try:
        yield
    except DAMAGED as error:
        raise BackupInvalid from error
