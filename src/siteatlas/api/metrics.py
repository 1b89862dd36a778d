"""`/metrics`: the queue as the database sees it, and this process.

How the numbers are written is the business of `insights.metrics`, which workers use too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Depends, Response

from siteatlas import __version__
from siteatlas.access.users import current_user
from siteatlas.api.context import Context
from siteatlas.api.documentation import problems
from siteatlas.errors import DatabaseError
from siteatlas.insights.metrics import MEDIA_TYPE, exposition, process_series, queue_series
from siteatlas.insights.queue_load import queue_load
from siteatlas.storage.session import get_session

# Prometheus itself waits for ten seconds, and shall hear of an outage.
DATABASE_SECONDS = 3.0
LONGEST_ANSWER = 100_000
TEXT = {"schema": {"type": "string", "maxLength": LONGEST_ANSWER}}
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Series in text.", "content": {"text/plain": TEXT}}
}

router = APIRouter(tags=["operations"], dependencies=[Depends(current_user)])


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={**DESCRIBED, **problems()},
)
async def get_metrics(context: Context) -> Response:
    """The queue, and what this process has done; without a database only the latter."""
    try:
        async with (
            asyncio.timeout(DATABASE_SECONDS),
            get_session() as session,
            session.begin(),
        ):
            load = await queue_load(session, context.ended_jobs)
    except (DatabaseError, TimeoutError):
        load = None
    return Response(
        exposition([*queue_series(load), *process_series(__version__)]), media_type=MEDIA_TYPE
    )
