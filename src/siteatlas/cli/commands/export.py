"""`siteatlas export`: stored URLs or changes as one file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.url_lists import ListingState, UrlFilter, require_sitemap
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.filters import (
    AtOption,
    ContainsOption,
    ExactUrlOption,
    FirstSeenFromOption,
    FirstSeenToOption,
    HasOption,
    KindsOption,
    LastmodFromOption,
    LastmodToOption,
    PrefixOption,
    SitemapOption,
    StateOption,
    parse_extras,
    parse_kinds,
    require_possible,
    require_reached,
)
from siteatlas.cli.terminal.options import (
    OptionalSiteArgument,
    TagFilterOption,
    refuse_site_with_tag,
)
from siteatlas.cli.terminal.output import counted, is_terminal, print_message, write_bytes
from siteatlas.cli.terminal.tables import ProgressLine
from siteatlas.errors import InputError, OutputFailed
from siteatlas.export.encoding import Exported, ExportFormat
from siteatlas.export.streaming import Export, ExportRequest, begin_export
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

ExportFormatOption = Annotated[
    ExportFormat | None,
    typer.Option(help="Format; parquet needs pyarrow. Default: by the suffix of FILE, or csv."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to FILE, which appears once it is complete."
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def export(
    site: OptionalSiteArgument = None,
    *,
    what: Annotated[Exported, typer.Option(help="The URLs, or their changes.")] = Exported.URLS,
    format: ExportFormatOption = None,
    output: OutputOption = None,
    contains: ContainsOption = None,
    prefix: PrefixOption = None,
    url: ExactUrlOption = None,
    sitemap: SitemapOption = None,
    lastmod_from: LastmodFromOption = None,
    lastmod_to: LastmodToOption = None,
    first_seen_from: FirstSeenFromOption = None,
    first_seen_to: FirstSeenToOption = None,
    has: HasOption = None,
    state: StateOption = ListingState.LISTED,
    tag: TagFilterOption = None,
    at: AtOption = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="Only changes after this sequence number."),
    ] = None,
    kinds: KindsOption = None,
) -> None:
    """Export all stored URLs of SITE, or of all sites, or their changes.

    Example: siteatlas export example.com -o urls.parquet
    """
    wanted = UrlFilter(
        contains=contains,
        state=state,
        prefix=prefix,
        url=url,
        sitemap=sitemap,
        lastmod_from=lastmod_from,
        lastmod_to=lastmod_to,
        first_seen_from=first_seen_from,
        first_seen_to=first_seen_to,
        has=parse_extras(has),
    )
    form = format or _format_of_file(output)
    request = ExportRequest(what, form, None, wanted, parse_kinds(kinds), after, tag, at)
    require_possible(wanted)
    _require_fitting_options(request, output)
    refuse_site_with_tag(site, tag)
    run(_export(prepare(), site, request, output))


def _format_of_file(output: Path | None) -> ExportFormat:
    """The format that the suffix of a file names; CSV for other files and stdout."""
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return next((form for form in ExportFormat if form.value == suffix), ExportFormat.CSV)


def _require_fitting_options(request: ExportRequest, output: Path | None) -> None:
    if request.what is Exported.CHANGES and (request.urls != UrlFilter() or request.at is not None):
        raise InputError("The filters of URLs do not apply to changes.")
    if request.what is Exported.URLS and (request.kinds is not None or request.after is not None):
        raise InputError("--after and --kinds apply to --what changes only.")
    if output is None and request.format is ExportFormat.PARQUET and is_terminal(sys.stdout):
        raise InputError("Parquet is not text: use --output FILE, or redirect the output.")


async def _export(
    settings: Settings, site: str | None, request: ExportRequest, output: Path | None
) -> None:
    async with opened(settings):
        async with get_session() as session, session.begin():
            await require_reached(session, request.after if request.at is None else request.at)
            if site is not None:
                request = replace(request, domain_id=(await find_domain_view(session, site)).id)
            await require_sitemap(session, request.urls, request.domain_id)
            export = await begin_export(session, request)
        await _write_export(export, output)
    rows, target = counted(export.row_count, "row"), f" to {output}" if output else ""
    as_of = f"as of sequence number {export.metadata.as_of_seq} (schema {export.metadata.schema})"
    print_message(f"Exported {rows}{target}, complete {as_of}.")


async def _write_export(export: Export, output: Path | None) -> None:
    """Write the bytes of an export; a file gets its name when it is complete."""
    if output is None:
        async for part in export.content:
            write_bytes(part)
        return
    unfinished = output.with_name(f".{output.name}.part")
    try:
        await _write_file(export, unfinished)
        unfinished.replace(output)
    except OSError as error:
        raise OutputFailed(f"{output}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


async def _write_file(export: Export, path: Path) -> None:
    with path.open("wb") as file, ProgressLine() as progress:
        async for part in export.content:
            file.write(part)
            progress.show(lambda: f"{counted(export.row_count, 'row')} exported")
