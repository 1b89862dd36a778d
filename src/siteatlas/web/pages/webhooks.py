"""Webhooks: who receives what, how far each receiver got, and the last deliveries.

The secret of a new webhook is on the page that answers the form, and nowhere else.
"""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.limits import ADMIN, READ
from siteatlas.catalog.webhooks import FEED_TYPES, find_webhook, list_deliveries, list_webhooks
from siteatlas.errors import InputError
from siteatlas.logs import get_logger
from siteatlas.notify.endpoints import (
    EndpointRequest,
    NewEndpoint,
    change_endpoint,
    create_endpoint,
    delete_endpoint,
    deliver_test,
)
from siteatlas.storage.session import get_session, retry_when_busy
from siteatlas.web.context import Context, Cursor, Form, ReadSession, Services, read_form
from siteatlas.web.templating import ask, next_href, redirect, render

ROWS = 50
MEANINGS = {
    "scan.published": "a scan of a site was published, with what changed",
    "scan.failed": "a scan of a site failed",
    "removals.held": "removals are held until they are proved",
    "findings.new": "something is wrong that was not before",
    "findings.resolved": "something is no longer wrong",
    "robots.changed": "the robots.txt of a site changed",
}

log = get_logger("web")
router = APIRouter(include_in_schema=False)


@router.get("/webhooks", dependencies=[READ], response_class=HTMLResponse)
async def show_webhooks(
    request: Request, session: ReadSession, cursor: Cursor = None
) -> HTMLResponse:
    """All webhooks, and the form for another."""
    page = await list_webhooks(session, limit=ROWS, cursor=cursor)
    return render(
        request,
        "webhooks.html",
        webhooks=page.items,
        types={kind.value: MEANINGS.get(kind.value, "") for kind in FEED_TYPES},
        next_href=next_href("/webhooks", page.next_cursor),
    )


@router.get("/webhooks/{webhook_id}", dependencies=[READ], response_class=HTMLResponse)
async def show_webhook(
    request: Request, session: ReadSession, webhook_id: UUID, cursor: Cursor = None
) -> HTMLResponse:
    """One webhook and its last deliveries."""
    webhook = await find_webhook(session, webhook_id)
    page = await list_deliveries(session, webhook_id, limit=ROWS, cursor=cursor)
    return render(
        request,
        "webhook.html",
        webhook=webhook,
        page=page,
        next_href=next_href(f"/webhooks/{webhook_id}", page.next_cursor),
    )


@router.post("/webhooks", dependencies=[ADMIN], response_class=HTMLResponse)
async def create_webhook_on_page(
    request: Request, context: Context, identity: CurrentIdentity
) -> HTMLResponse:
    """Create a webhook and show its secret."""
    created = await _create(_endpoint_request(await read_form(request)), context, identity.user_id)
    context.notify_scheduler()
    log.info("webhook_created", webhook_id=str(created.id))
    return render(request, "webhook_created.html", ident=created.id, secret=created.secret)


def _endpoint_request(form: Form) -> EndpointRequest:
    """What the form asks for; no sites means all of them."""
    names = form.value("domains").split()
    return EndpointRequest(
        form.value("url"), form.many("type"), names or None, form.value("description")
    )


@retry_when_busy
async def _create(wanted: EndpointRequest, context: Services, user_id: UUID) -> NewEndpoint:
    async with get_session() as session, session.begin():
        return await create_endpoint(session, wanted, context.policy, user_id)


@router.post("/webhooks/{webhook_id}/{action}", dependencies=[ADMIN])
async def act_on_webhook(
    request: Request, context: Context, webhook_id: UUID, action: str
) -> Response:
    """Send a test message, enable, disable or, once that is confirmed, delete a webhook."""
    if action == "delete" and not (await read_form(request)).is_checked("confirmed"):
        async with get_session() as session, session.begin():
            url = (await find_webhook(session, webhook_id)).url
        return ask(
            request,
            "Delete this webhook",
            f"{url} receives nothing more, and the log of its deliveries is deleted.",
            f"/webhooks/{webhook_id}",
        )
    if action == "test":
        await deliver_test(webhook_id, context.settings, context.policy)
    else:
        await _act(webhook_id, action, context)
        context.notify_scheduler()
        log.info("webhook_changed", webhook_id=str(webhook_id), action=action)
    return redirect("/webhooks" if action == "delete" else f"/webhooks/{webhook_id}")


@retry_when_busy
async def _act(webhook_id: UUID, action: str, context: Services) -> None:
    if action not in {"enable", "disable", "delete"}:
        raise InputError("A webhook can be tested, enabled, disabled or deleted.")
    async with get_session() as session, session.begin():
        if action == "delete":
            await delete_endpoint(session, webhook_id)
        else:
            changes = {"enabled": action == "enable"}
            await change_endpoint(session, webhook_id, context.policy, changes)
