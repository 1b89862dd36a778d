"""Exports: all URLs or changes of a site, or of all sites, as one file."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from siteatlas.access.authentication import AccessControl, is_still_admitted
from siteatlas.access.identity import CurrentIdentity, Identity, RequestKey
from siteatlas.access.limits import READ, CurrentLimits
from siteatlas.api.context import ReadSession
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX, DomainName
from siteatlas.api.schemas.urls import AllExportQuery, ExportQuery
from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.url_lists import UrlFilter
from siteatlas.errors import InputError, KeyRequired
from siteatlas.export.encoding import MEDIA_TYPES, ChangeColumns, Exported, ExportFormat
from siteatlas.export.streaming import ExportRequest, begin_export
from siteatlas.storage.session import AsyncSession

ADMISSION_CHECK_SECONDS = 15.0

_described: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file, without a length. JSON Lines end with a line that has `end` set "
        "to true.",
        "content": {
            media_type.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for media_type in MEDIA_TYPES.values()
        },
        "headers": {
            "Siteatlas-As-Of-Seq": {
                "description": "Continue with the change feed after this number.",
                "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            },
            "Siteatlas-Schema": {
                "description": "Name and version of the columns.",
                "schema": {"type": "string", "maxLength": 64},
            },
        },
    },
}

router = APIRouter(tags=["urls"])


@dataclass(frozen=True, slots=True)
class ExportPermit:
    """The user of an export, and what it holds until its response has ended."""

    identity: Identity
    control: AccessControl
    held: AsyncExitStack

    def supervised(self, content: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The bytes of an export while its user has access; closed when its response has ended.

        A response that is cancelled does not close what it sends, and a Parquet export must not be
        given back before its process has ended.
        """
        parts = self._while_admitted(content)
        self.held.push_async_callback(parts.aclose)
        return parts

    async def _while_admitted(
        self, content: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an export; KeyRequired between two parts when the access has ended."""
        check_at = time.monotonic() + ADMISSION_CHECK_SECONDS
        async with aclosing(content):
            async for part in content:
                if time.monotonic() >= check_at:
                    if not await is_still_admitted(self.identity, self.control):
                        raise KeyRequired(
                            "The access key or session with which this export began "
                            "is no longer valid."
                        )
                    check_at = time.monotonic() + ADMISSION_CHECK_SECONDS
                yield part


async def _export_permit(
    request: Request, identity: CurrentIdentity, limits: CurrentLimits
) -> AsyncIterator[ExportPermit]:
    """Wait for a place, which the export has until its response has ended; HEAD needs none."""
    is_parquet = request.query_params.get("format") == ExportFormat.PARQUET
    async with AsyncExitStack() as held:
        if not request.scope.get(RequestKey.head_only):
            await held.enter_async_context(limits.export(identity, parquet=is_parquet))
        yield ExportPermit(identity, request.app.state.access, held)


CurrentExportPermit = Annotated[ExportPermit, Depends(_export_permit, scope="request")]


@router.get(
    "/api/v3/export",
    summary="Export the URLs or changes of all sites",
    response_class=StreamingResponse,
    responses={**_described, **problems(410)},
    dependencies=[READ],
)
async def export_all(
    request: Request,
    query: Annotated[AllExportQuery, Query()],
    permit: CurrentExportPermit,
    session: ReadSession,
) -> Response:
    """All matching rows in one response that is produced while it is sent."""
    wanted = _export_request(query, None, query.wanted_tag)
    name = query.name or f"all-sites-{query.what.value}"
    return await _export_response(request, permit, session, wanted, name)


@router.get(
    f"{PREFIX}/{{domain}}/export",
    summary="Export the URLs or changes of a site",
    response_class=StreamingResponse,
    responses={**_described, **problems(404, 410)},
    dependencies=[READ],
)
async def export_domain(
    request: Request,
    domain: DomainName,
    query: Annotated[ExportQuery, Query()],
    permit: CurrentExportPermit,
    session: ReadSession,
) -> Response:
    """All matching rows in one response that is produced while it is sent."""
    site = await find_domain_view(session, domain)
    name = query.name or f"{site.domain.replace(':', '-')}-{query.what.value}"
    return await _export_response(request, permit, session, _export_request(query, site.id), name)


def _export_request(
    query: ExportQuery, domain_id: UUID | None, tag: str | None = None
) -> ExportRequest:
    _require_fitting_filters(query)
    return ExportRequest(
        query.what,
        query.format,
        domain_id,
        query.wanted,
        query.wanted_kinds,
        query.after,
        tag,
        query.moment,
        query.until,
        query.columns,
    )


async def _export_response(
    request: Request,
    permit: ExportPermit,
    session: AsyncSession,
    wanted: ExportRequest,
    name: str,
) -> Response:
    """The response that streams an export; a connection that is cut has no last chunk."""
    export = await begin_export(session, wanted)
    file = f"{name}.{wanted.format.value}"
    headers = {
        "Content-Disposition": f'attachment; filename="{file}"',
        "Siteatlas-As-Of-Seq": str(export.metadata.as_of_seq),
        "Siteatlas-Schema": export.metadata.schema,
        "Siteatlas-Feed-Id": export.metadata.feed_id,
    }
    if request.scope.get(RequestKey.head_only):
        return Response(headers=headers, media_type=wanted.format.media_type)
    content = permit.supervised(export.content)
    return StreamingResponse(content, headers=headers, media_type=wanted.format.media_type)


def _require_fitting_filters(query: ExportQuery) -> None:
    has_url_filter = query.wanted != UrlFilter() or query.moment is not None
    if query.what is Exported.CHANGES and has_url_filter:
        raise InputError("With what=changes, use only after, until and kinds as filters.")
    of_changes = (query.after, query.until, query.kinds)
    is_short = query.columns is ChangeColumns.SHORT
    if query.what is Exported.URLS and (is_short or of_changes != (None, None, None)):
        raise InputError("after, until, kinds and columns apply to what=changes only.")
    if is_short and query.format is not ExportFormat.CSV:
        raise InputError("columns=short applies to format=csv only.")
