"""Migrations form one line: each has its own number, and follows the one before."""

from __future__ import annotations

from pathlib import Path

from alembic.script import ScriptDirectory

FOLDER = "src/siteatlas/storage/migrations"


def test_migrations_form_one_line_in_the_order_of_their_numbers(project: Path):
    script = ScriptDirectory(str(project / FOLDER))
    revisions = [step.revision for step in script.walk_revisions()]
    files = sorted(path.name[:4] for path in (project / FOLDER / "versions").glob("0*.py"))
    assert revisions == list(reversed(files))
    assert len(script.get_heads()) == 1
