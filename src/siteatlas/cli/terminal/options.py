"""Options that several commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperOption

from siteatlas.catalog.change_feed import EVENT_KINDS, URL_KINDS, read_head
from siteatlas.catalog.url_lists import ListingState, UrlExtra, UrlFilter
from siteatlas.cli.terminal.output import ListFormat, is_terminal
from siteatlas.errors import InputError
from siteatlas.storage.session import AsyncSession
from siteatlas.text import parse_tag

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def require_confirmation(question: str, consequence: str, *, yes: bool) -> None:
    """Ask unless `--yes` was given; where nobody can be asked, it is required."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise InputError(f"{consequence} Add --yes to confirm.")
    typer.confirm(question, abort=True, err=True)


def complete_choice(*known: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion for an option that takes one of these words."""
    words = [str(word) for group in known for word in group]

    def complete(incomplete: str) -> list[str]:
        """The choices that a word on the command line can be completed to."""
        return [word for word in words if word.startswith(incomplete.lower())]

    return complete


def alternatives(known: Iterable[str]) -> str:
    """The words of a set, as the help of an option shows them."""
    return "|".join(known)


def counted(number: int, noun: str) -> str:
    """`1 URL`, `1,200 URLs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


KINDS = sorted(URL_KINDS | EVENT_KINDS)

KindsOption = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS",
        help="Only these kinds, separated by commas, such as added,removed.",
        autocompletion=complete_choice(KINDS),
    ),
]


def parse_kinds(text: str | None) -> frozenset[str] | None:
    """The kinds that `--kinds` names; None for all."""
    if text is None:
        return None
    given = {word.strip() for word in text.split(",")}
    if unknown := sorted(given - set(KINDS)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: use some of {', '.join(KINDS)}.", param_hint="'--kinds'"
        )
    return frozenset(given)


TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Tag to add to the sites. Repeatable."),
]
TagFilterOption = Annotated[
    str | None,
    typer.Option(
        "--tag", metavar="TAG", parser=parse_tag, help="Only of sites that have this tag."
    ),
]


def refuse_site_with_tag(site: str | None, tag: str | None) -> None:
    """Refuse a command that names both a site and a tag."""
    if site is not None and tag is not None:
        raise InputError("Use either SITE or --tag, not both.")


async def require_reached(session: AsyncSession, moment: object) -> None:
    """Refuse a number that the change feed has not reached; anything but a number passes."""
    if isinstance(moment, int) and moment > (head := await read_head(session)).seq:
        raise InputError(head.limit_text)


COMMAND_LINE = "COMMANDLINE"


def given_options(context: typer.Context) -> dict[str, str]:
    """The options on the command line of a command: the name of each parameter, as typed."""
    options = [p for p in context.command.params if p.param_type_name == "option"]
    return {p.name: p.opts[0] for p in options if p.name and _is_given(context, p.name)}


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether the value of an option comes from the command line."""
    source = context.get_parameter_source(name)
    # By name: typer does not export the type.
    return source is not None and source.name == COMMAND_LINE


STDIN = "-"
COMMENT = "#"
MAX_LINE_CHARS = 8192


def site_in_line(line: bytes) -> str | None:
    """The site that a line on the stdin of a command names; None for a blank line or comment."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.partition(f" {COMMENT}")[0].strip()
    return text if text and not text.startswith(COMMENT) else None


_AGE = re.compile(r"(\d{1,6})\s*(s|min|m|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d\S*)?", re.ASCII)
TIME_FORMS = "90s, 30min, 2h, 3d, 2026-01-31 or 2026-01-31T12:00"
FORMS = "90s, 30min, 2h, 3d, 2026-01-31, 2026-01-31T12:00, or a sequence number of the feed"


def typed_moment(text: str) -> datetime | int:
    """The value of an option that takes a moment or a number of the feed."""
    return parse_moment(text, datetime.now(UTC))


def parse_moment(text: str, now: datetime) -> datetime | int:
    """The moment that a user means, or a number of the feed; times without a zone are UTC."""
    return int(text) if _NUMBER.fullmatch(text) else parse_time(text, now, FORMS)


def parse_time(text: str, now: datetime, forms: str = TIME_FORMS) -> datetime:
    """The moment that a user means: an age, a date or a time, without a zone in UTC."""
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(_why_no_time(text, forms)) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _why_no_time(text: str, forms: str) -> str:
    """Why a text is no time: there is no such date, or its form is unknown."""
    if date := _DATE.fullmatch(text):
        return f"there is no such {'time' if date[1] else 'date'}: {text}."
    return f"'{text}' is none of these: {forms}."


Parameter = TyperArgument | TyperOption
NEEDS_TYPER = object()


def plain_parameters(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """The parameters of a command, of which typer validates only what is no plain value."""
    parameters = get_params(ctx)
    for parameter in parameters:
        if isinstance(parameter, Parameter) and "process_value" not in vars(parameter):
            process = partial(_process, parameter, parameter.process_value)
            parameter.process_value = process  # type: ignore[method-assign]
    return parameters


def _process(parameter: Parameter, validate: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """Convert a command-line value; only what is no plain value is left to typer."""
    converted = plain_value(parameter, value)
    if converted is NEEDS_TYPER:
        return validate(ctx, value)
    return parameter.callback(ctx, parameter, converted) if parameter.callback else converted


def plain_value(parameter: Parameter, value: Any) -> Any:
    """The value as typer would convert it; NEEDS_TYPER if only typer can tell."""
    if value is None:
        return NEEDS_TYPER if parameter.required else _absent(parameter)
    if value is parameter.default:
        return value
    descriptor = parameter.type_descriptor
    if descriptor.parameter_info.parser is not None:
        return NEEDS_TYPER
    if descriptor.annotation is str and isinstance(value, str):
        return value
    if descriptor.annotation == list[str] and isinstance(value, (list, tuple)) and value:
        return list(value) if all(isinstance(item, str) for item in value) else NEEDS_TYPER
    return _choice(descriptor.annotation, value)


def _absent(parameter: Parameter) -> tuple[()] | None:
    """The value of an option or argument that is not on the command line."""
    return () if parameter.multiple or parameter.nargs == -1 else None


def _choice(annotation: Any, value: Any) -> Any:
    """The enum member for a command-line value; NEEDS_TYPER if it is no such choice."""
    if not (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return NEEDS_TYPER
    return next((choice for choice in annotation if choice.value == value), NEEDS_TYPER)


class FailOn(StrEnum):
    """What makes a scan or a job end with exit code 1; each includes those before it."""

    FAILED = "failed"
    PARTIAL = "partial"
    PROBLEMS = "problems"

    def counts_as_failure(self, *, partial: bool, problems: bool) -> bool:
        """Whether `--fail-on`, an option of several commands, makes this result a failure."""
        match self:
            case FailOn.FAILED:
                return False
            case FailOn.PARTIAL:
                return partial
            case FailOn.PROBLEMS:
                return partial or problems


SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="A host such as example.com.")]
OptionalSiteArgument = Annotated[
    str | None,
    typer.Argument(metavar="SITE", help="A host such as example.com; all sites without it."),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Number or UUID of the job.")]
FormatOption = Annotated[ListFormat, typer.Option("--format", help="Output format.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ListJsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        help="Exit with an error if the scan failed (failed), if it failed or is partial "
        "(partial), or if it failed, is partial or found problems (problems)."
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of items to print.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Continue from the next_cursor of an earlier page.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Print all items.")]


SCHEMES = ("http://", "https://")
FULL_URL_HINT = "Write https://example.com/path, or use --contains for a part of the URL."
EXTRAS = [extra.value for extra in UrlExtra]


def _parse_filter_time(text: str) -> datetime:
    """The time that an option of a filter gives."""
    return parse_time(text, datetime.now(UTC))


def _time_option(name: str, help: str) -> object:
    """An option of a filter that takes a time."""
    return typer.Option(
        name, metavar="WHEN", parser=_parse_filter_time, help=f"{help}: {TIME_FORMS}."
    )


ContainsOption = Annotated[
    str | None, typer.Option(help="Only URLs that contain this text, ignoring case.")
]
PrefixOption = Annotated[str | None, typer.Option(help="Only URLs that start with this text.")]
ExactUrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Only this URL, exactly as listed.")
]
SitemapOption = Annotated[
    str | None,
    typer.Option(metavar="SITEMAP", help="Only URLs in the sitemap with this id or URL."),
]
LastmodFromOption = Annotated[
    datetime | None, _time_option("--lastmod-from", "Only with a lastmod since")
]
LastmodToOption = Annotated[
    datetime | None, _time_option("--lastmod-to", "Only with a lastmod before")
]
FirstSeenFromOption = Annotated[
    datetime | None, _time_option("--first-seen-from", "Only URLs first seen since")
]
FirstSeenToOption = Annotated[
    datetime | None, _time_option("--first-seen-to", "Only URLs first seen before")
]
HasOption = Annotated[
    str | None,
    typer.Option(
        metavar="EXTRAS",
        help=f"Only URLs that have all of these, separated by commas: {', '.join(EXTRAS)}.",
        autocompletion=complete_choice(EXTRAS),
    ),
]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        "--at", metavar="WHEN", parser=typed_moment, help=f"The URLs of SITE as of: {FORMS}."
    ),
]
StateOption = Annotated[ListingState, typer.Option(help="Listed URLs, removed URLs, or all.")]


def require_possible(wanted: UrlFilter) -> None:
    """Raise InputError if no URL can ever match a filter."""
    for option, text in (("--prefix", wanted.prefix), ("--url", wanted.url)):
        if text and not _may_start_url(text):
            raise InputError(f"{option} is compared with full URLs. {FULL_URL_HINT}")
    _require_order("lastmod", wanted.lastmod_from, wanted.lastmod_to)
    _require_order("first-seen", wanted.first_seen_from, wanted.first_seen_to)


def _may_start_url(text: str) -> bool:
    """Whether an http(s) URL can start with the value of a filter."""
    start = text.lower()
    return any(s.startswith(start) or start.startswith(s) for s in SCHEMES)


def _require_order(name: str, start: datetime | None, end: datetime | None) -> None:
    """Refuse a filter for a range of time that ends before it starts."""
    if start is not None and end is not None and start >= end:
        raise InputError(f"--{name}-from must be earlier than --{name}-to.")


def parse_extras(text: str | None) -> frozenset[UrlExtra]:
    """The extras that `--has` names."""
    given = {word.strip() for word in text.split(",")} if text else set()
    if unknown := sorted(given - set(EXTRAS)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: use some of {', '.join(EXTRAS)}.", param_hint="'--has'"
        )
    return frozenset(map(UrlExtra, given))
