"""Webhooks: create, list, change, delete, test, replay, and what was delivered."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response, status

from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.limits import ADMIN, READ
from siteatlas.api.context import Context, ReadSession, WriteSession
from siteatlas.api.limits import ParsedBodyRoute
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.schemas.base import QueryShape
from siteatlas.api.schemas.webhooks import (
    DeliveriesQuery,
    ReplayQuery,
    SecretAnswer,
    WebhookChange,
    WebhookCreated,
    WebhookCreation,
)
from siteatlas.catalog.paging import Page
from siteatlas.catalog.views import Shown, extended
from siteatlas.catalog.webhooks import (
    DeliveryView,
    SentMessage,
    WebhookView,
    find_webhook,
    list_deliveries,
    list_webhooks,
)
from siteatlas.logs import get_logger
from siteatlas.notify.endpoints import (
    EndpointRequest,
    change_endpoint,
    create_endpoint,
    delete_endpoint,
    deliver_test,
    replay,
    rotate_secret,
)

log = get_logger("api")
router = APIRouter(prefix="/api/v3/webhooks", tags=["webhooks"], route_class=ParsedBodyRoute)

WebhookIdent = Annotated[
    UUID, Path(description="The id of a webhook.", examples=[Shown.webhook_id])
]


@router.get(
    "",
    dependencies=[READ],
    summary="List webhooks",
    responses=problems(),
)
async def get_webhooks(
    query: Annotated[QueryShape, Query()], session: ReadSession
) -> Page[WebhookView]:
    """All webhooks, including disabled ones; never their secrets."""
    return await list_webhooks(session, **query.page)


@router.post(
    "",
    dependencies=[ADMIN],
    summary="Create a webhook",
    status_code=status.HTTP_201_CREATED,
    responses={201: LOCATION, **problems(409)},
)
async def post_webhook(
    body: WebhookCreation,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    session: WriteSession,
) -> WebhookCreated:
    """Create a webhook, which gets messages about everything published from now on.

    Its secret is only in this response.
    """
    request = EndpointRequest(body.url, body.types, body.domains, body.description)
    async with session.begin():
        created = await create_endpoint(session, request, context.policy, identity.user_id)
        view = await find_webhook(session, created.id)
    context.notify_scheduler()
    log.info("webhook_created", webhook_id=str(created.id))
    response.headers["Location"] = f"{router.prefix}/{created.id}"
    return extended(WebhookCreated, view, secret=created.secret)


@router.get(
    "/{webhook_id}",
    dependencies=[READ],
    summary="Show a webhook",
    responses=problems(404),
)
async def get_webhook(webhook_id: WebhookIdent, session: ReadSession) -> WebhookView:
    """One webhook: which messages it gets, how far it got, and whether deliveries fail."""
    return await find_webhook(session, webhook_id)


@router.patch(
    "/{webhook_id}",
    dependencies=[ADMIN],
    summary="Change a webhook",
    responses=problems(404),
)
async def patch_webhook(
    webhook_id: WebhookIdent, body: WebhookChange, context: Context, session: WriteSession
) -> WebhookView:
    """Change, enable or disable a webhook. The next message is tried at once."""
    changes: dict[str, Any] = body.changes()
    async with session.begin():
        await change_endpoint(session, webhook_id, context.policy, changes)
        view = await find_webhook(session, webhook_id)
    context.notify_scheduler()
    log.info("webhook_changed", webhook_id=str(webhook_id))
    return view


@router.delete(
    "/{webhook_id}",
    dependencies=[ADMIN],
    summary="Delete a webhook",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=problems(404),
)
async def delete_webhook(webhook_id: WebhookIdent, session: WriteSession) -> None:
    """Delete a webhook and the log of its deliveries."""
    async with session.begin():
        await delete_endpoint(session, webhook_id)
    log.info("webhook_deleted", webhook_id=str(webhook_id))


@router.post(
    "/{webhook_id}/rotate-secret",
    dependencies=[ADMIN],
    summary="Rotate the secret of a webhook",
    responses=problems(404),
)
async def rotate_webhook_secret(webhook_id: WebhookIdent, session: WriteSession) -> SecretAnswer:
    """Replace the secret. For 24 hours messages are signed with the old one too.

    The new secret is only in this response.
    """
    async with session.begin():
        secret = await rotate_secret(session, webhook_id)
    log.info("webhook_secret_rotated", webhook_id=str(webhook_id))
    return SecretAnswer(secret=secret)


@router.post(
    "/{webhook_id}/test",
    dependencies=[ADMIN],
    summary="Send a test message",
    responses=problems(404),
)
async def send_test_message(webhook_id: WebhookIdent, context: Context) -> SentMessage:
    """Send a message of type `webhook.test` now, and return how the receiver answered."""
    return await deliver_test(webhook_id, context.settings, context.policy)


@router.post(
    "/{webhook_id}/replay",
    dependencies=[ADMIN],
    summary="Deliver messages again",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problems(404, 410),
)
async def replay_webhook(
    webhook_id: WebhookIdent, query: Annotated[ReplayQuery, Query()], session: WriteSession
) -> WebhookView:
    """Deliver the messages after a number or a time again, in order and with the same ids.

    The response is 410 `cursor_expired` if the change feed no longer has them.
    """
    async with session.begin():
        await replay(session, webhook_id, after_seq=query.after_seq, since=query.since)
        view = await find_webhook(session, webhook_id)
    log.info("webhook_replayed", webhook_id=str(webhook_id), after_seq=view.delivered_seq)
    return view


@router.get(
    "/{webhook_id}/deliveries",
    dependencies=[READ],
    summary="List deliveries of a webhook",
    responses=problems(404),
)
async def get_deliveries(
    webhook_id: WebhookIdent, query: Annotated[DeliveriesQuery, Query()], session: ReadSession
) -> Page[DeliveryView]:
    """The attempts to deliver messages, newest first."""
    return await list_deliveries(session, webhook_id, delivered=query.delivered, **query.page)
