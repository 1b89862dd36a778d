"""Submit many sites together, and follow their progress."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response, status

from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.limits import CurrentLimits
from siteatlas.access.marks import READ, SCAN
from siteatlas.api.body_limits import KIB, ParsedBodyRoute
from siteatlas.api.context import NO_WORKER, Context
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.problems import FieldRefused
from siteatlas.api.schemas.batches import (
    BatchCreated,
    BatchItemAnswer,
    BatchRequest,
    BatchStatusAnswer,
)
from siteatlas.api.sessions import ReadSession, WriteSession
from siteatlas.errors import AddressError
from siteatlas.insights.batches import BatchView, find_batch, list_batch_items
from siteatlas.logs import get_logger
from siteatlas.net.egress import EgressPolicy, parse_allowed_site
from siteatlas.queue.batches import BatchEntry, create_batch
from siteatlas.safe_text import storable
from siteatlas.storage.models import JobStatus

PREFIX = "/api/v3/sitemap/batch"
LARGER_BODIES = {f"{PREFIX}/create": 1024 * KIB}
MAX_STORED_NAME_CHARS = 2048

log = get_logger("api")
router = APIRouter(
    prefix=PREFIX,
    tags=["scans"],
    route_class=ParsedBodyRoute,
)


@router.post(
    "/create",
    dependencies=[SCAN],
    summary="Scan many sites",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=BatchCreated,
    responses={202: LOCATION, **problems(409)},
)
async def create_site_batch(
    body: BatchRequest,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> BatchCreated:
    """Queue all sites that can be scanned and report the others. Fails only if none can be."""
    entries = _entries(body.domains, context.policy)
    sites = sum(entry.address is not None for entry in entries)
    async with limits.queue_room.turn(identity) as turn, session.begin():
        await turn.reserve(session, sites)
        batch_id = await create_batch(
            session,
            entries,
            created_by=identity.user_id,
            max_pages=body.max_pages,
            max_attempts=context.settings.max_attempts,
        )
        items = await list_batch_items(session, batch_id)
        worker_running = await context.has_live_worker(session)
    context.wake_consumer()
    log.info("batch_submitted", batch_id=batch_id, total=len(items))
    status_url = f"{PREFIX}/status/{batch_id}"
    response.headers["Location"] = status_url
    return BatchCreated(
        batch_id=batch_id,
        status=JobStatus.PENDING.value,
        total_domains=len(items),
        status_url=status_url,
        items=[BatchItemAnswer.model_validate(item) for item in items],
        warning=None if worker_running else NO_WORKER,
    )


@router.get(
    "/status/{batch_id}",
    dependencies=[READ],
    summary="Get the status and progress of a batch",
    response_model=BatchStatusAnswer,
    responses=problems(404),
)
async def get_batch_status(batch_id: UUID, session: ReadSession) -> BatchView:
    """The status of a batch and of each of its sites."""
    return await find_batch(session, batch_id)


def _entries(texts: list[str], policy: EgressPolicy) -> list[BatchEntry]:
    """One entry for each different line; FieldRefused when no line can be used."""
    entries: list[BatchEntry] = []
    faults: list[tuple[str, AddressError]] = []
    for text, position in _first_positions(texts).items():
        try:
            entries.append(
                BatchEntry(storable(text, MAX_STORED_NAME_CHARS), parse_allowed_site(text, policy))
            )
        except AddressError as error:
            faults.append((f"#/domains/{position}", error))
            entries.append(
                BatchEntry(storable(text, MAX_STORED_NAME_CHARS), None, error.code, error.message)
            )
    if len(faults) == len(entries):
        raise FieldRefused(*faults, detail="None of the domains can be scanned.")
    return entries


def _first_positions(texts: list[str]) -> dict[str, int]:
    """Each name and where it stands first: the status of a batch has one entry for a name."""
    positions: dict[str, int] = {}
    for position, text in enumerate(texts):
        positions.setdefault(text, position)
    return positions
