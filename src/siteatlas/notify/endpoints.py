"""Webhook endpoints: checks requests for new ones, and creates, changes, replays and tests it.

The caller owns the transaction, except that of a test message, which no transaction waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from siteatlas.catalog import webhooks
from siteatlas.catalog.change_feed import last_number_before, read_head, start_position
from siteatlas.catalog.webhooks import (
    FEED_TYPES,
    MAX_DOMAINS,
    NewDelivery,
    count_webhooks,
    load_endpoint,
    record_test,
)
from siteatlas.errors import AddressScheme, InputError, TooManyWebhooks, WebhookNotFound
from siteatlas.net.address import parse_site, parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.messages import delivery_of, generate_secret, make_test_message, open_sender
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession, database_time, get_background_session

# What an endpoint can choose; a test message is sent whatever it chose.
MAX_ENDPOINTS = 1_000
MAX_DESCRIPTION_CHARS = 200


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """The request for a new endpoint; no types means all types, no domains all sites."""

    url: str
    types: Collection[str] | None = None
    domains: Collection[str] | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """A new endpoint; its secret is shown only here."""

    id: UUID
    secret: str = field(repr=False)


async def create_endpoint(
    session: AsyncSession, request: EndpointRequest, policy: EgressPolicy, created_by: UUID
) -> NewEndpoint:
    """Store an endpoint that gets a message about everything published from now on."""
    values: dict[str, Any] = {
        "url": checked_url(request.url, policy),
        "types": checked_types(FEED_TYPES if request.types is None else request.types),
        "domains": checked_domains(request.domains),
        "description": checked_description(request.description),
    }
    if await count_webhooks(session) >= MAX_ENDPOINTS:
        raise TooManyWebhooks
    secret = generate_secret()
    ident = await webhooks.insert_endpoint(session, secret=secret, created_by=created_by, **values)
    return NewEndpoint(ident, secret)


def checked_url(text: str, policy: EgressPolicy) -> str:
    """The address of a receiver in its normal form; AddressError if it may not be contacted."""
    try:
        address = parse_url(text)
    except AddressScheme as error:
        raise AddressScheme("Messages can be sent to http and https addresses only.") from error
    policy.for_site(address).require(address)
    return address.url


def checked_types(types: Iterable[str]) -> list[str]:
    """The types of messages, each once and in their order; InputError for others or for none."""
    asked = set(types)
    if not asked or not asked <= set(FEED_TYPES):
        raise InputError(f"Choose one or more of these types: {', '.join(FEED_TYPES)}.")
    return [kind.value for kind in FEED_TYPES if kind in asked]


def checked_domains(names: Collection[str] | None) -> list[str] | None:
    """The names of sites as they are stored; None for all sites, AddressError for no names."""
    if names is None:
        return None
    if not 1 <= len(names) <= MAX_DOMAINS:
        raise InputError(f"Name 1 to {MAX_DOMAINS} sites, or none at all for all of them.")
    return sorted({parse_site(name).domain for name in names})


def checked_description(text: str) -> str:
    """A description without outer blanks; InputError if it is long or unprintable."""
    stripped = text.strip()
    if len(stripped) > MAX_DESCRIPTION_CHARS or not stripped.isprintable():
        raise InputError(f"A description has at most {MAX_DESCRIPTION_CHARS} printable characters.")
    return stripped


async def change_endpoint(
    session: AsyncSession, endpoint_id: UUID, policy: EgressPolicy, changes: Mapping[str, Any]
) -> None:
    """Change `url`, `types`, `domains`, `description` or `enabled` of an endpoint."""
    checks: dict[str, Callable[[Any], Any]] = {
        "url": partial(checked_url, policy=policy),
        "types": checked_types,
        "domains": checked_domains,
        "description": checked_description,
    }
    values = {name: checks[name](changes[name]) for name in checks.keys() & changes.keys()}
    require_found(await webhooks.change_endpoint(session, endpoint_id, **values))
    if "enabled" in changes:
        switch = webhooks.enable_endpoint if changes["enabled"] else webhooks.disable_endpoint
        await switch(session, endpoint_id)


async def delete_endpoint(session: AsyncSession, endpoint_id: UUID) -> None:
    """Delete an endpoint; WebhookNotFound if there is none with this id."""
    require_found(await webhooks.delete_endpoint(session, endpoint_id))


async def rotate_secret(session: AsyncSession, endpoint_id: UUID) -> str:
    """Give an endpoint a new secret; for a day messages are signed with the old one too."""
    secret = generate_secret()
    require_found(
        await webhooks.rotate_endpoint_secret(
            session, endpoint_id, secret, overlap=timedelta(hours=24)
        )
    )
    return secret


async def replay(
    session: AsyncSession,
    endpoint_id: UUID,
    *,
    after_seq: int | None = None,
    since: datetime | None = None,
) -> None:
    """Deliver again what followed a number or a moment; CursorExpired if it is not retained."""
    if (after_seq is None) == (since is None):
        raise InputError("Use either after_seq or since.")
    head = await read_head(session)
    if since is not None:
        after_seq = await last_number_before(session, since, after=head.retained_from)
    start = start_position(head, after=after_seq, cursor=None).done
    require_found(await webhooks.move_endpoint(session, endpoint_id, start))


def require_found(found: bool) -> None:
    """Raise WebhookNotFound if a statement found no endpoint."""
    if not found:
        raise WebhookNotFound


async def deliver_test(endpoint_id: UUID, settings: Settings, policy: EgressPolicy) -> NewDelivery:
    """Send a test message now, also to a disabled endpoint, and log it."""
    async with get_background_session() as session, session.begin():
        endpoint, now = await load_endpoint(session, endpoint_id), await database_time(session)
    if endpoint is None:
        raise WebhookNotFound
    message = make_test_message(endpoint.id, uuid4(), now)
    async with open_sender(endpoint, settings, policy) as sender:
        attempt = await sender.send(message, now)
    delivery = delivery_of(message, attempt, 1)
    async with get_background_session() as session, session.begin():
        require_found(await record_test(session, endpoint.id, delivery))
    return delivery
