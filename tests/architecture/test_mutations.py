"""Every mutation fits the code and names tests that exist; `make mutations` runs the tests.

Whoever changes a line that a mutation edits adapts the case in `tests/mutations/cases.py`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.fixtures.named_tests import functions_of
from tests.mutations.cases import MUTATIONS
from tests.mutations.mutation import EVERY, Edit, Mutation, mutation

KEPT = """\
class Kept:
    old = 1

    @old
    def method(self): ...

    def other(self): return old
"""

each_mutation = pytest.mark.parametrize("case", MUTATIONS, ids=lambda case: case.says)


@each_mutation
def test_a_mutation_fits_the_code_and_leaves_valid_python(project: Path, case: Mutation) -> None:
    changed = case.changed_files(project / "src" / "siteatlas")
    assert changed
    for path, text in changed.items():
        assert text != path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            ast.parse(text, filename=path.name)


@each_mutation
def test_the_tests_of_a_mutation_exist(project: Path, case: Mutation) -> None:
    assert case.tests
    for test in case.tests:
        file, _, name = test.partition("::")
        functions = functions_of(project / file)
        assert functions
        assert not name or name in functions


@pytest.mark.parametrize(("times", "text"), [(1, ""), (1, "old old"), (2, "old"), (EVERY, "")])
def test_an_edit_that_does_not_fit_is_refused(times: int | None, text: str) -> None:
    with pytest.raises(LookupError, match=r"some\.module contains 'old'"):
        Edit("some.module", "old", "new", times).applied_to(text)


@pytest.mark.parametrize(("times", "text"), [(1, "old"), (2, "old old"), (EVERY, "old old old")])
def test_an_edit_that_fits_replaces_each_occurrence(times: int | None, text: str) -> None:
    edited = Edit("some.module", "old", "new", times).applied_to(text)
    assert edited == text.replace("old", "new")


@pytest.mark.parametrize(
    "name", ["siteatlas.rooms.Kept.method", "siteatlas.rooms.deep.Kept.method"]
)
def test_an_edit_changes_only_the_source_of_the_name(tmp_path: Path, name: str) -> None:
    file = tmp_path.joinpath(*name.split(".")[:-2]).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_text(KEPT, encoding="utf-8")
    case = mutation("it differs", "", Edit(name, "old", "new"))
    expected = KEPT.replace("@old\n    def method", "@new\n    def method")
    assert case.changed_files(tmp_path / "siteatlas") == {file: expected}


@pytest.mark.parametrize(
    "name", ["no_such.module", "siteatlas.rooms.gone", "siteatlas.rooms.Kept.gone"]
)
def test_a_name_that_is_not_in_the_package_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "siteatlas" / "rooms.py"
    file.parent.mkdir(parents=True)
    file.write_text(KEPT, encoding="utf-8")
    with pytest.raises(LookupError, match="is not"):
        mutation("it differs", "", Edit(name, "old", "new")).changed_files(file.parent)
