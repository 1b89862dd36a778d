"""`/metrics`: the queue as the database sees it, and this process.

How the numbers are written is the business of `insights.metrics`, which workers use too.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from siteatlas import __version__
from siteatlas.access.marks import READ
from siteatlas.api.context import Context
from siteatlas.api.openapi import problems
from siteatlas.errors import DatabaseError
from siteatlas.insights.metrics import MEDIA_TYPE, process_metrics, queue_metrics

MAX_METRICS_CHARS = 200_000
TEXT = {"schema": {"type": "string", "maxLength": MAX_METRICS_CHARS}}
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics in the Prometheus text format.", "content": {"text/plain": TEXT}}
}

router = APIRouter(tags=["operations"])


@router.get(
    "/metrics",
    dependencies=[READ],
    summary="Get metrics for Prometheus",
    response_class=Response,
    responses={**DESCRIBED, **problems()},
)
async def get_metrics(context: Context) -> Response:
    """Metrics of the queue and of this process.

    Without a database, only `siteatlas_database_up` and the metrics of the process.
    """
    try:
        load = await context.queue_load.run()
    except DatabaseError:
        load = None
    return Response(queue_metrics(load) + process_metrics(__version__), media_type=MEDIA_TYPE)
