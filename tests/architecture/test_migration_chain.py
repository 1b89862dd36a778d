"""Migrations form one line: each revision has one number and follows the one before."""

from __future__ import annotations

import re
from pathlib import Path

from siteatlas.storage import migrations

ASSIGNED = re.compile(r'^(revision|down_revision) = "?(\w+)"?$', re.MULTILINE)


def test_each_migration_follows_the_one_before() -> None:
    folder = Path(migrations.__path__[0]) / "versions"
    files = sorted(folder.glob("[0-9]*.py"))
    found = [dict(ASSIGNED.findall(file.read_text(encoding="utf-8"))) for file in files]
    assert [one["revision"] for one in found] == [file.name[:4] for file in files]
    assert [one["down_revision"] for one in found[1:]] == [one["revision"] for one in found[:-1]]
