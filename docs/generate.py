"""Writes the pages that come from the code: commands, errors, problems, settings and verification.

`python -m docs.generate` writes them; with `--check` it only compares and fails on a difference.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from docs.criteria import verification_page
from siteatlas import errors
from siteatlas.cli.main import COMMANDS, PROGRAM, app, load_command
from siteatlas.errors import DatabaseUnavailable, RateLimited, SiteatlasError, error_classes
from siteatlas.scanner.problem_codes import ProblemCode, ProblemGroup
from siteatlas.settings import SETTINGS_FILE, Settings, environment_name

DOCS = Path(__file__).resolve().parent

Command = TyperCommand | TyperGroup
Row = tuple[str, str, str]

COMMANDS_INTRO = """\
# Commands and their options

Every command with its arguments and options, as `--help` shows them. How the commands behave, their
formats and their exit codes: [command-line.md](command-line.md).

This page is written by `make docs` from the command tree in `src/siteatlas/cli/`.
"""

ERRORS_INTRO = """\
# Errors

Every error has a code that stays the same from version to version. The API sends it as `code` of
a problem document, a job keeps it as `error_code`, and the command line ends with the exit code
beside it. "Tried again" says whether a job with this error is put back into the queue; "for free"
means that the attempt does not count.

Elsewhere: [codes that only HTTP requests meet](http-api.md#problems), and
[what documents and scans may carry](problems.md), which are not errors.

This page is written by `make docs` from `src/siteatlas/errors/`.
"""

PROBLEMS_INTRO = """\
# Problems of documents and scans

A sitemap with faults is read all the same. What was repaired, noticed or left out is counted by
code. These codes are not errors: a document that carries them can be `complete`. Errors are in
[errors.md](errors.md).

Each problem of a document has a `count` and up to 20 `samples`. A sample holds the `url` of the
page, the `value` as it was listed (truncated after 500 and 200 characters) and the
number of the `entry` in its document, the first being 1. What is not known is null: a problem of
the document as a whole belongs to no entry.

- `siteatlas scan` shows problems by code in the summary on stderr; `siteatlas scan -v` lists all
  of them with what they mean and their samples. `problems[]` of `--json` has `code, url, detail,
  count, samples`.
- Scans of the service store them: `GET /api/v3/domains/{domain}/problems` and `siteatlas problems
  SITE` list them by code, with the first and the last scan that found them.

Looking for URLs that a document lists twice (`duplicate_url`) takes time, which a scan that writes
URLs does not spend: `scan` looks in the formats `table`, `tree` and `json`, and with `-v` in all.
The library does not. The service always knows, since it compares with what is stored.

A stored problem is *current* until a complete read of its document no longer shows it. Then it
gets a `resolved_at` and is only listed with `state=all` (`--state all`); it becomes current again
when it comes back. A read that was cut resolves nothing.

This page is written by `make docs` from `ProblemCode` in
`src/siteatlas/scanner/problem_codes.py`.
"""

SCAN_INTRO = """\
Each of these makes a scan *partial* and is listed in its `reasons`. So does the
[error code](errors.md) of a document that was cut or could not be read.

"""

CANDIDATE_INTRO = """\
The `reason` of a candidate (`GET /api/v3/domains/{domain}/candidates`, `candidates[]` of
`scan --json`) is an [error code](errors.md), one of the limits above, or one of these:

"""

PROBLEM_GROUPS = (
    ("Entries that are left out", "", "code", ProblemGroup.LEFT_OUT),
    ("Values and entries that are kept, with a remark", "", "code", ProblemGroup.KEPT),
    ("The document as a whole", "", "code", ProblemGroup.DOCUMENT),
    ("The scan as a whole", SCAN_INTRO, "code", ProblemGroup.SCAN),
    ("Candidates", CANDIDATE_INTRO, "reason", ProblemGroup.CANDIDATE),
)

SETTINGS_INTRO = f"""\
# Settings

A flag of the command line comes before the environment, the environment before the file
`{SETTINGS_FILE}` in the current directory, the file before the default. `siteatlas config show`
prints each value in force and where it came from. In the file, a setting is written with the name
in the second column.

This page is written by `make docs` from `src/siteatlas/settings.py`.
"""

DATA_DIRECTORY = "`/var/lib/siteatlas` for root, else the user's own data directory"

# These stand at every command; the page shows them once.
AT_EVERY_COMMAND = frozenset({"help", "install_completion", "show_completion"})
LIMITS = re.compile(r"(.*?)\s*\[([^\[\]]*)\]", re.DOTALL)
RANGE = re.compile(r"([\d.]+)<=x<=([\d.]+)")
LEAST = re.compile(r"x>=([\d.]+)")


def own_errors() -> list[type[SiteatlasError]]:
    """The classes of `siteatlas.errors`, each once, parents before children."""
    every = dict.fromkeys(error_classes())
    return [cls for cls in every if cls.__module__.startswith(f"{errors.__name__}.")]


def families() -> Iterator[tuple[type[SiteatlasError], list[type[SiteatlasError]]]]:
    """Each branch of the error tree with all of its classes."""
    yield SiteatlasError, [SiteatlasError]
    for branch in SiteatlasError.__subclasses__():
        yield branch, [cls for cls in own_errors() if issubclass(cls, branch)]


def default_message(cls: type[SiteatlasError]) -> str:
    """The first paragraph of the docstring, on one line."""
    first = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def tried_again(cls: type[SiteatlasError]) -> str:
    """What becomes of a job that meets this error."""
    if issubclass(cls, DatabaseUnavailable):
        return "yes, for free"
    if cls is RateLimited:
        return "when the site says"
    # A bug of ours may be gone with the next attempt, or with the next version of us.
    return "yes" if cls.transient or cls is SiteatlasError else "no"


def error_row(cls: type[SiteatlasError]) -> str:
    again = tried_again(cls)
    message = default_message(cls)
    return f"| `{cls.code}` | {message} | {cls.http_status} | {cls.exit_code} | {again} |"


def errors_page() -> str:
    """The whole text of errors.md."""
    parts = [ERRORS_INTRO]
    for branch, members in families():
        heading = f"## {branch.__name__}\n\n| code | means | HTTP | exit | tried again |"
        parts.append("\n".join([heading, "|---|---|---|---|---|", *map(error_row, members)]) + "\n")
    return "\n".join(parts)


def problems_page() -> str:
    """The whole text of problems.md."""
    parts = [PROBLEMS_INTRO]
    for title, text, name, group in PROBLEM_GROUPS:
        rows = [f"| `{code}` | {code.meaning} |" for code in ProblemCode.of(group)]
        table = "\n".join([f"| {name} | means |", "|---|---|", *rows])
        parts.append(f"## {title}\n\n{text}{table}\n")
    return "\n".join(parts)


def default_of(field: str, schema: dict[str, Any]) -> str:
    if Settings.model_fields[field].default_factory is not None:
        return DATA_DIRECTORY
    default = schema.get("default")
    return "none" if default in {None, ""} else f"`{default}`"


def limits_of(schema: dict[str, Any]) -> str:
    """What values are taken, in words."""
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    words = []
    if "exclusiveMinimum" in schema:
        words.append(f"above {schema['exclusiveMinimum']:g}")
    if "minimum" in schema:
        words.append(f"from {schema['minimum']:,g}")
    if "maximum" in schema:
        words.append(f"to {schema['maximum']:,.0f}")
    if "maxLength" in schema:
        words.append(f"at most {schema['maxLength']} characters")
    return " ".join(words)


def settings_page() -> str:
    """The whole text of settings.md."""
    properties = Settings.model_json_schema()["properties"]
    lines = ["| environment | in the file | default | values | means |", "|---|---|---|---|---|"]
    for field, schema in properties.items():
        cells = [
            f"`{environment_name(field)}`",
            f"`{field}`",
            default_of(field, schema),
            limits_of(schema),
            schema["description"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return SETTINGS_INTRO + "\n" + "\n".join(lines) + "\n"


def commands_page() -> str:
    """The whole text of commands.md."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    context = typer.Context(root, info_name=PROGRAM, help_option_names=["-h", "--help"])
    parts = [COMMANDS_INTRO, command_section(PROGRAM, root, context, hidden=frozenset())]
    for name in COMMANDS:
        parts += command_sections(f"{PROGRAM} {name}", load_command(name), context)
    return "\n".join(parts)


def command_sections(path: str, command: Command, parent: typer.Context) -> Iterator[str]:
    """A command, or in its place the commands of a group."""
    context = typer.Context(command, parent=parent, info_name=path)
    if not isinstance(command, TyperGroup):
        yield command_section(path, command, context, hidden=AT_EVERY_COMMAND)
        return
    for name, member in command.commands.items():
        assert isinstance(member, TyperCommand)
        yield from command_sections(f"{path} {name}", member, context)


def command_section(
    path: str, command: Command, context: typer.Context, *, hidden: frozenset[str]
) -> str:
    parameters = [one for one in command.get_params(context) if one.name not in hidden]
    arguments = [one for one in parameters if isinstance(one, TyperArgument)]
    options = [one for one in parameters if isinstance(one, TyperOption)]
    title = " ".join([path, *(argument_name(one) for one in arguments)])
    rows = [argument_row(one, context) for one in arguments]
    rows += [option_row(one, context) for one in options]
    lines = [f"## {title}", "", command_summary(command)]
    if rows:
        lines += ["", "| argument or option | means | default, limits |", "|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def command_summary(command: Command) -> str:
    """The help of a command, an example as code."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    return "\n\n".join(re.sub(rf": ({PROGRAM} .*)", r": `\1`", part) for part in paragraphs)


def argument_name(argument: TyperArgument) -> str:
    name = (argument.metavar or argument.name).strip("[]").upper()
    return name if argument.required else f"[{name}]"


def argument_row(argument: TyperArgument, context: typer.Context) -> Row:
    record = argument.get_help_record(context)
    return (f"`{argument_name(argument)}`", *means_and_limits(record[1] if record else ""))


def option_row(option: TyperOption, context: typer.Context) -> Row:
    name, text = option.get_help_record(context) or ("", "")
    return (f"`{cell(name)}`", *means_and_limits(text))


def means_and_limits(text: str) -> tuple[str, str]:
    match = LIMITS.fullmatch(text)
    means, limits = match.groups() if match else (text, "")
    limits = RANGE.sub(lambda found: f"{number(found[1])} to {number(found[2])}", limits)
    limits = LEAST.sub(lambda found: f"from {number(found[1])}", limits)
    return cell(means), cell(limits)


def number(text: str) -> str:
    return f"{int(text):,}" if text.isdigit() else text


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/errors.md": errors_page,
    "reference/problems.md": problems_page,
    "reference/settings.md": settings_page,
    "verification.md": verification_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that are out of date."""
    outdated = []
    for name, page in PAGES.items():
        file, text = DOCS / name, page()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            outdated.append(name)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
                print(f"wrote {file.name}")
    if outdated and "--check" in arguments:
        print(f"out of date: {', '.join(outdated)}. Run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
