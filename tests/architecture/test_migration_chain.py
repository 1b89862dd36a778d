"""Migrations form one line: each follows the one before it."""

from __future__ import annotations

import re
from pathlib import Path

REVISION = re.compile(r'^revision = "(\d+)"\ndown_revision = (?:"(\d+)"|None)$', re.MULTILINE)


def test_each_migration_follows_the_one_before(project: Path):
    folder = project / "src" / "siteatlas" / "storage" / "migrations" / "versions"
    files = sorted(folder.glob("*.py"))
    found = [match.groups() for file in files for match in REVISION.finditer(file.read_text())]
    assert [file.name[:4] for file in files] == [revision for revision, _ in found]
    revisions = [revision for revision, _ in found]
    assert [before for _, before in found] == [None, *revisions[:-1]]
