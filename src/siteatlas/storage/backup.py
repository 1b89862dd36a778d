"""Backup and restore of what is stored, as one file that does not depend on the server's version.

The file is a compressed tar archive: a manifest, the rows of each table as COPY writes them in text
format, and the number of rows at the end. What only running processes need is left out. A backup is
written from one snapshot and restored in one transaction, then migrated to the current schema.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tarfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import mkstemp
from typing import Any, BinaryIO, Self

import asyncpg
from sqlalchemy import (
    BigInteger,
    Connection,
    Identity,
    Integer,
    Table,
    cast,
    column,
    exists,
    func,
    inspect,
    select,
    table,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import quoted_name

from siteatlas.errors import (
    BackupInvalid,
    DatabaseError,
    DatabaseNotEmpty,
    InputError,
    OutputFailed,
    SchemaNewer,
    SchemaOutdated,
)
from siteatlas.storage.copying import copy_time_limit, translated_copy_faults
from siteatlas.storage.engine import BACKUP_NAME, translated_faults
from siteatlas.storage.models import ApiKey, Base, Domain, FeedHead, Job
from siteatlas.storage.schema import (
    UPGRADE_LOCK,
    check_known,
    migrate,
    needed_revision,
    read_revision,
    table_of,
)
from siteatlas.storage.session import Database

PART_BYTES = 4 * 2**20
COPY_SECONDS = 86_400.0
STANDARD_STREAM = "-"
MAX_IDENTITY = 2**63 - 1
Step = Callable[[AsyncConnection], Awaitable[None]]
# For this transaction: no limits of time, and values in a form that every server reads alike.
_prepare = select(
    *(
        func.set_config(name, value, True)
        for name, value in {
            "application_name": BACKUP_NAME,
            "statement_timeout": "0",
            "lock_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
            "datestyle": "ISO, YMD",
            "intervalstyle": "postgres",
            "bytea_output": "hex",
            "extra_float_digits": "1",
        }.items()
    )
)


async def write_backup(
    database: Database, file: BinaryIO, *, secrets: bool = True
) -> dict[str, int]:
    """Write the database to a file; returns the number of rows by table.

    Without `secrets`, the tables that hold any are left out. All rows belong to one snapshot, so
    that nothing is locked for other processes.
    """
    left_out = () if secrets else ("site_headers", "webhook_deliveries", "webhook_endpoints")
    tables = [table for table in backed_up_tables() if table.name not in left_out]
    with translated_faults():
        async with database.engine.connect() as plain:
            snapshot = await plain.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            async with snapshot.begin():
                await snapshot.execute(_prepare)
                writer = ArchiveWriter(file, await _describe_tables(snapshot, tables))
                for table in tables:
                    await _write_table(snapshot, table, writer)
    return writer.finish()


def backed_up_tables() -> list[Table]:
    """The tables of a backup, each behind those that it refers to."""
    # What only running processes need.
    left_out = {"workers", "rate_limits", "browser_sessions"}
    return [table for table in Base.metadata.sorted_tables if table.name not in left_out]


async def _describe_tables(connection: AsyncConnection, backed_up: list[Table]) -> Manifest:
    tables = [
        TableContents(table.name, _stored_columns(table), await _last_identity(connection, table))
        for table in backed_up
    ]
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(needed_revision(), version("siteatlas"), moment, tuple(tables))


def _stored_columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.computed is None)


async def _last_identity(connection: AsyncConnection, table: Table) -> tuple[str, int] | None:
    for own in table.columns:
        if isinstance(own.server_default, Identity):
            following = await next_identity(connection, table.name, own.name) or 1
            return own.name, max(following - 1, 1)
    return None


async def next_identity(connection: AsyncConnection, name: str, of_column: str) -> int | None:
    """The number that the next row gets; None if the column is no identity."""
    sequence = await connection.scalar(select(func.pg_get_serial_sequence(name, of_column)))
    if sequence is None:
        return None
    following = select(column("last_value", BigInteger) + cast(column("is_called"), Integer))
    numbers = following.select_from(table(quoted_name(sequence, quote=False)))
    return int(await connection.scalar(numbers) or 1)


async def _write_table(connection: AsyncConnection, table: Table, writer: ArchiveWriter) -> None:
    rows = writer.table(table.name)
    count = await copy_out(connection, table.name, _stored_columns(table), rows.write)
    rows.flush()
    writer.count(table.name, count)


async def verify_backup(reader: ArchiveReader) -> dict[str, int]:
    """Read a whole backup without a database: the rows by table, or what a restore would refuse."""
    _check_backup_revision(reader.manifest)
    _check_backup_tables(reader.manifest)
    rows = {}
    for contents in reader.manifest.tables:
        # COPY writes a line for each row.
        rows[contents.name] = sum([part.count(b"\n") async for part in reader.rows(contents.name)])
    if rows != reader.finish():
        raise BackupInvalid
    return rows


async def restore_backup(
    database: Database,
    reader: ArchiveReader,
    *,
    check: Step,
    finish: Step,
    replace: bool = False,
    renew_feed: bool = True,
) -> dict[str, int]:
    """Put the contents of a backup in the place of the database; returns the rows by table.

    `check` runs before any row is deleted, on a database with the current schema; not at all if
    the database has none. `finish` runs on the restored one. With `renew_feed` the feed gets a new
    id: positions of readers from before are refused, because events with the same numbers may mean
    something else now.
    """
    with translated_faults():
        async with database.engine.begin() as connection:
            await connection.execute(_prepare)
            await connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
            revocations = await _inspect(connection, check, replace=replace)
            await _make_tables(connection, reader.manifest)
            rows = await _load(connection, reader)
            await connection.run_sync(migrate, needed_revision())
            if renew_feed:
                await connection.execute(update(FeedHead).values(feed_id=func.gen_random_uuid()))
            await _revoke_again(connection, revocations)
            await finish(connection)
            await analyze(connection, [each.name for each in backed_up_tables()])
    return rows


@dataclass(frozen=True, slots=True)
class Revocation:
    """A key that was revoked in the database that a backup replaces."""

    key_id: str
    revoked_at: Any


async def _inspect(connection: AsyncConnection, check: Step, *, replace: bool) -> list[Revocation]:
    """Refuse to lose data unasked; returns the keys that must stay revoked.

    An older schema is upgraded first: the queries here and in `check` are for the current one.
    """
    if await connection.run_sync(read_revision) is None:
        return []
    await connection.run_sync(migrate, needed_revision())
    await check(connection)
    if not replace and await _has_data(connection):
        raise DatabaseNotEmpty
    revoked = select(ApiKey.id, ApiKey.revoked_at).where(ApiKey.revoked_at.is_not(None))
    return [Revocation(*row) for row in await connection.execute(revoked)]


async def _has_data(connection: AsyncConnection) -> bool:
    used = [exists().select_from(table_of(model)) for model in (Domain, Job, ApiKey)]
    return any((await connection.execute(select(*used))).one())


async def _make_tables(connection: AsyncConnection, manifest: Manifest) -> None:
    """Make empty tables in the schema of the backup.

    Tables of the same schema are emptied instead, which keeps privileges that others have on them.
    """
    _check_backup_revision(manifest)
    _check_backup_tables(manifest)
    current = await connection.run_sync(read_revision)
    if current != manifest.revision:
        if current is not None:
            await connection.run_sync(migrate, "base")
        await connection.run_sync(migrate, manifest.revision)
    # Those that a backup leaves out refer to others, and new ones have their first rows.
    await truncate(connection, await connection.run_sync(_our_tables))


def _our_tables(connection: Connection) -> list[str]:
    return sorted(set(Base.metadata.tables) & set(inspect(connection).get_table_names()))


def _check_backup_tables(manifest: Manifest) -> None:
    """Refuse a backup with tables of other programs; no migration has dropped one of ours yet."""
    if not {contents.name for contents in manifest.tables} <= set(Base.metadata.tables):
        raise BackupInvalid


def _check_backup_revision(manifest: Manifest) -> None:
    try:
        check_known(manifest.revision)
    except SchemaNewer as error:
        raise SchemaNewer(
            f"The backup was written by Siteatlas {manifest.version}, which is newer than this "
            "version. Restore it with that version."
        ) from error


async def _load(connection: AsyncConnection, reader: ArchiveReader) -> dict[str, int]:
    rows = {}
    for contents in reader.manifest.tables:
        name, source = contents.name, reader.rows(contents.name)
        with _refused_rows():
            rows[name] = await copy_in(connection, name, contents.columns, source)
        if contents.identity is not None:
            await _continue_identity(connection, name, *contents.identity)
    if rows != reader.finish():
        raise BackupInvalid
    return rows


@contextmanager
def _refused_rows() -> Iterator[None]:
    try:
        yield
    # What the server says about tables, columns and rows that it cannot take.
    except (
        SchemaOutdated,
        asyncpg.DataError,
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.ProgramLimitExceededError,
        asyncpg.SyntaxOrAccessError,
    ) as error:
        raise BackupInvalid from error


async def _continue_identity(
    connection: AsyncConnection, name: str, of_column: str, last: int
) -> None:
    if await next_identity(connection, name, of_column) is None:
        raise BackupInvalid
    greatest = await connection.scalar(select(func.max(column(of_column))).select_from(table(name)))
    following = max(last, greatest or 1) + 1
    if following > MAX_IDENTITY:
        raise BackupInvalid
    # Unlike setval(), this is undone if the restore fails later on.
    await connection.execute(
        text(
            f"ALTER TABLE {_listed(connection, [name])} "
            f"ALTER COLUMN {_listed(connection, [of_column])} RESTART WITH {following}"
        )
    )


async def _revoke_again(connection: AsyncConnection, revocations: list[Revocation]) -> None:
    """Keep keys revoked that were revoked after the backup was written."""
    for one in revocations:
        still_valid = (ApiKey.id == one.key_id) & ApiKey.revoked_at.is_(None)
        await connection.execute(
            update(ApiKey).where(still_valid).values(revoked_at=one.revoked_at)
        )


async def copy_out(
    connection: AsyncConnection,
    table: str,
    columns: tuple[str, ...],
    write: Callable[[bytes], Awaitable[None]],
) -> int:
    """Pass the rows of a table to `write`, as COPY gives them; returns their number."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    with translated_copy_faults(driver):
        async with copy_time_limit(driver, COPY_SECONDS):
            done = await driver.copy_from_table(
                table, columns=columns, output=write, format="text", timeout=COPY_SECONDS
            )
    return _row_count(done)


async def copy_in(
    connection: AsyncConnection, table: str, columns: tuple[str, ...], rows: AsyncIterator[bytes]
) -> int:
    """Send rows to a table in the form in which COPY gave them; returns their number."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    with translated_copy_faults(driver):
        async with copy_time_limit(driver, COPY_SECONDS):
            done = await driver.copy_to_table(
                table, columns=columns, source=rows, format="text", timeout=COPY_SECONDS
            )
    return _row_count(done)


def _row_count(done: str) -> int:
    return int(done.rpartition(" ")[2])


async def truncate(connection: AsyncConnection, tables: Iterable[str]) -> None:
    """Empty tables; refused if a table that is not among them refers to one of them."""
    try:
        await connection.execute(text(f"TRUNCATE {_listed(connection, tables)}"))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "0A000":
            raise
        raise DatabaseError(
            "A table of another program refers to one of Siteatlas, whose rows can therefore not "
            "be replaced. Restore the backup into another database."
        ) from error


async def analyze(connection: AsyncConnection, tables: Iterable[str]) -> None:
    """Collect statistics, without which the first queries would be planned for empty tables."""
    await connection.execute(text(f"ANALYZE {_listed(connection, tables)}"))


def _listed(connection: AsyncConnection, tables: Iterable[str]) -> str:
    return ", ".join(map(connection.dialect.identifier_preparer.quote_identifier, tables))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup contains, and the schema revision and program version that it comes from."""

    revision: str
    version: str
    created_at: str
    tables: tuple[TableContents, ...]

    def to_json(self) -> bytes:
        """The first member of the archive."""
        return json.dumps({"format": 1, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Read the first member of the archive."""
        if content["format"] != 1:
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
        identity = _stated_identity(content["identity"], columns)
        return cls(_name(content["name"]), columns, identity)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: Any) -> str:
    name = _text(value)
    if not (name.isascii() and name.isidentifier()):
        raise ValueError
    return name


def _stated_identity(value: Any, columns: tuple[str, ...]) -> tuple[str, int] | None:
    if value is None:
        return None
    column, last = value
    if column not in columns or not isinstance(last, int) or not 0 < last <= MAX_IDENTITY:
        raise ValueError
    return column, last


class ArchiveWriter:
    """Writes a backup; without `finish` the file stays invalid."""

    def __init__(self, file: BinaryIO, manifest: Manifest) -> None:
        # Level 1 takes a third of the time of the default; files are a quarter larger.
        self._gzip = gzip.GzipFile("", "wb", 1, file, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w")  # noqa: SIM115 closed by finish
        self._rows: dict[str, int] = {}
        self._add("manifest.json", manifest.to_json())

    def table(self, name: str) -> TableWriter:
        """Begin the rows of a table."""
        return TableWriter(name, self._add)

    def count(self, name: str, rows: int) -> None:
        """Note how many rows of a table were written."""
        self._rows[name] = rows

    def finish(self) -> dict[str, int]:
        """Write the end of the archive; returns the number of rows by table."""
        self._add("end.json", json.dumps({"rows": self._rows}).encode())
        with _write_faults():
            self._tar.close()
            self._gzip.close()
        return self._rows

    def _add(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o600
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
        self._parts += 1
        self._add(f"{self._name}/{self._parts:06}.copy", bytes(self._waiting[:PART_BYTES]))
        del self._waiting[:PART_BYTES]


class Inflated:
    """The content of a gzip file that has one member and nothing behind it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end, where the checksum is compared."""
        content = bytearray()
        while len(content) < size and not self._inflate.eof:
            compressed = self._inflate.unconsumed_tail or self._file.read(64 * 1024)
            part = self._inflate.decompress(compressed, size - len(content))
            if not (part or compressed):
                raise EOFError
            content += part
        return bytes(content)

    def is_at_end(self) -> bool:
        """Whether everything was read, and the file ends there."""
        at_end = not self.read(1) and not self._inflate.unused_data
        return at_end and not self._file.read(1)


class ArchiveReader:
    """Reads a backup in the order in which it was written; BackupInvalid if it is damaged."""

    def __init__(self, file: BinaryIO) -> None:
        with _damage():
            self._content = Inflated(file)
            stream: Any = self._content  # Only read() is called.
            self._tar = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115 the caller closes it
            self._next = self._tar.next()
            self.manifest = Manifest.from_json(self._json("manifest.json"))

    async def rows(self, table: str) -> AsyncIterator[bytes]:
        """What COPY wrote for this table, which must be the next one in the archive."""
        tail = b"\n"
        while self._next is not None and self._next.name.startswith(f"{table}/"):
            with _damage():
                part = self._take(2 * PART_BYTES)
            # The server would ignore what follows a line with this mark, which no row looks like.
            if b"\n\\.\n" in tail + part:
                raise BackupInvalid
            tail = (tail + part)[-3:]
            yield part

    def finish(self) -> dict[str, int]:
        """Read the end of the archive, and so its checksum: the number of rows by table."""
        with _damage():
            rows = {str(name): int(rows) for name, rows in self._json("end.json")["rows"].items()}
            # tarfile may stop before the last record, which has nothing but zeros.
            rest = self._content.read(tarfile.RECORDSIZE)
            if self._next is not None or any(rest) or not self._content.is_at_end():
                raise BackupInvalid
        return rows

    def _json(self, name: str) -> dict[str, Any]:
        if self._next is None or self._next.name != name:
            raise BackupInvalid
        content: dict[str, Any] = json.loads(self._take(2**20))
        return content

    def _take(self, most: int) -> bytes:
        member = self._next
        if member is None or not member.isreg() or member.size > most:
            raise BackupInvalid
        file = self._tar.extractfile(member)
        assert file is not None
        content: bytes = file.read()
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
    try:
        yield
    except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
        raise BackupInvalid from error
    # JSON that is not of the expected form.
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise BackupInvalid from error


@contextmanager
def backup_target(name: str) -> Iterator[BinaryIO]:
    """A file to write a backup to, readable by its owner only; `-` is stdout.

    It replaces an older file of the same name when it is complete and on disk. A device or a pipe
    is written to instead: root would replace even `/dev/null`.
    """
    if name == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        with _unfinished(path) as (file, unfinished):
            yield file
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise OutputFailed(f"{path}: {error.strerror or error}") from error


@contextmanager
def _unfinished(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file next to `path`, deleted at the end if it still has its first name.

    Its name is unique, since two processes may write a backup to one path. Only its owner may read
    it: a backup holds everything that is stored.
    """
    handle, name = mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def backup_source(name: str) -> Iterator[BinaryIO]:
    """A file to read a backup from; `-` is stdin."""
    if name == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 closed below
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    with file:
        yield file
