"""Files that are no backup of ours: always the same error, and nothing is changed."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import Any

import pytest
from sqlalchemy import text

from siteatlas.errors import BackupInvalid, SiteatlasError
from siteatlas.storage.backup import ArchiveWriter, Manifest, TableContents
from siteatlas.storage.schema import needed_revision
from siteatlas.storage.session import Database
from tests.catalog.database.backups import backup, restore, rows_by_table
from tests.fixtures.database import transaction

OTHER_JSON = [b"", b"[]", b"null", b"7", b"[" * 100_000, b"{}", b"\xff"]
OTHER_COUNTS = [b"[]", b"null", b"7", b'{"users": null}', b'{"users": 1e400}']
OTHER_ROWS = [b"\0\n", b"no id\n", b"\\N\tname\tnow\n", b"\xff\n", b"1"]


def rewritten(content: bytes, member: str, data: bytes) -> bytes:
    """The backup with other data in one of its members."""
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as source,
        tarfile.open(fileobj=target, mode="w") as changed,
    ):
        for each in source:
            found = source.extractfile(each)
            assert found is not None
            kept = data if each.name == member else found.read()
            each.size = len(kept)
            changed.addfile(each, io.BytesIO(kept))
    return gzip.compress(target.getvalue(), 1)


def with_manifest(content: bytes, **changes: Any) -> bytes:
    """The backup with other values in its manifest."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as source:
        found = source.extractfile("manifest.json")
        assert found is not None
        manifest = json.load(found) | changes
    return rewritten(content, "manifest.json", json.dumps(manifest).encode())


def users(**changes: Any) -> list[Any]:
    """The tables of a manifest: one, with these values."""
    usual = {"name": "users", "columns": ["id", "name", "created_at"], "identity": None}
    return [usual | changes]


MALFORMED_TABLES: list[Any] = [
    None,
    7,
    ["users"],
    [None],
    [{"name": "users"}],
    users(columns=None),
    users(columns=["id", 7]),
    users(columns=["id", "no_such_column"]),
    users(columns=["id", "id"]),
    users(columns=["id", 'x" from stdin']),
    users(name=None),
    users(name="no_such_table"),
    users(name="pg_class"),
    users(identity=[]),
    users(identity=["id"]),
    users(identity=["id", "x"]),
    users(identity=["id", 1e400]),
    users(identity=["id", 2**63]),
    users(identity=["id", 1]),
    users(identity=["no_such_column", 1]),
]


def without_rows(*tables: TableContents) -> bytes:
    """A complete backup of empty tables."""
    file = io.BytesIO()
    writer = ArchiveWriter(file, Manifest(needed_revision(), "1", "now", tables))
    for table in tables:
        writer.count(table.name, 0)
    writer.finish()
    return file.getvalue()


async def results(database: Database, *files: bytes) -> list[str]:
    """What restoring each file ends with: the code of an error, and whether that left a trace."""
    before, found = await rows_by_table(), []
    for file in files:
        try:
            await restore(database, file)
        except SiteatlasError as error:
            found.append(error.code if await rows_by_table() == before else "changed")
        else:
            found.append("restored")
    return found


def refused(files: int) -> list[str]:
    """The results of files that are all invalid."""
    return [BackupInvalid.code] * files


async def test_malformed_tables_in_the_manifest_are_refused(database: Database):
    content = await backup(database)
    files = [with_manifest(content, tables=tables) for tables in MALFORMED_TABLES]
    assert await results(database, *files) == refused(len(MALFORMED_TABLES))


async def test_a_manifest_without_a_revision_or_a_version_is_refused(database: Database):
    content = await backup(database)
    values: list[Any] = [None, 7, ["0001"], {}]
    files = [
        with_manifest(content, **{name: value})
        for name in ("revision", "version")
        for value in values
    ]
    assert await results(database, *files) == refused(8)


@pytest.mark.parametrize("member", ["manifest.json", "end.json"])
async def test_json_of_another_form_is_refused(database: Database, member: str):
    content = await backup(database)
    files = [rewritten(content, member, data) for data in OTHER_JSON]
    assert await results(database, *files) == refused(len(OTHER_JSON))


async def test_a_malformed_number_of_rows_is_refused(database: Database):
    content = await backup(database)
    ends = [b'{"rows": ' + counts + b"}" for counts in OTHER_COUNTS]
    files = [rewritten(content, "end.json", end) for end in ends]
    assert await results(database, *files) == refused(len(OTHER_COUNTS))


async def test_rows_that_the_server_does_not_take_are_refused(database: Database):
    content = await backup(database)
    files = [rewritten(content, "users/000001.copy", rows) for rows in OTHER_ROWS]
    assert await results(database, *files) == refused(len(OTHER_ROWS))


async def test_a_file_with_another_checksum_is_refused(database: Database):
    content = without_rows(TableContents("users", ("id",)))
    assert await results(database, content[:-8] + bytes(4) + content[-4:]) == refused(1)


async def test_a_manifest_cannot_name_tables_of_other_programs(database: Database):
    async with transaction() as session:
        await session.execute(text("CREATE TABLE notes (id uuid, name text, created_at text)"))
        await session.execute(text("INSERT INTO notes (name) VALUES ('kept')"))
    assert await results(database, without_rows(TableContents("notes", ("name",)))) == refused(1)
    async with transaction() as session:
        assert await session.scalar(text("SELECT name FROM notes")) == "kept"
