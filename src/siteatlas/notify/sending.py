"""Sends messages to one endpoint: signs them, and reports how each attempt ended."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from siteatlas.errors import SiteatlasError
from siteatlas.net.address import parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.from_settings import configured_proxy
from siteatlas.net.posting import PostClient
from siteatlas.net.resolver import DnsResolver
from siteatlas.notify.messages import Message
from siteatlas.notify.schedule import ATTEMPT_SECONDS, Attempt
from siteatlas.notify.signing import signed_headers
from siteatlas.settings import Settings
from siteatlas.storage.statements.webhook_deliveries import ClaimedEndpoint, NewDelivery


@dataclass(frozen=True, slots=True)
class Sender:
    """A connection to one endpoint."""

    client: PostClient
    secrets: tuple[str, ...]

    async def send(self, message: Message) -> Attempt:
        """One attempt to deliver a message. Nothing is raised: every failure is an outcome."""
        headers = signed_headers(message.id, int(time.time()), message.body, self.secrets)
        since = time.monotonic()
        try:
            result = await self.client.post(message.body, headers)
        except SiteatlasError as error:
            return Attempt(None, error.code, time.monotonic() - since)
        seconds = time.monotonic() - since
        return Attempt(result.status, None, seconds, result.retry_after)


@asynccontextmanager
async def open_sender(
    endpoint: ClaimedEndpoint,
    settings: Settings,
    policy: EgressPolicy,
    seconds: float = ATTEMPT_SECONDS,
) -> AsyncIterator[Sender]:
    """The connection to an endpoint; its address is checked at every attempt."""
    secrets = (endpoint.secret, endpoint.previous_secret)
    async with PostClient(
        parse_url(endpoint.url),
        policy,
        user_agent=settings.user_agent,
        seconds=seconds,
        resolver=DnsResolver(settings.name_servers),
        proxy=configured_proxy(settings),
    ) as client:
        yield Sender(client, tuple(filter(None, secrets)))


def delivery_of(message: Message, attempt: Attempt, number: int) -> NewDelivery:
    """The entry of the log for one attempt."""
    return NewDelivery(
        message_id=message.id,
        type=message.type,
        seq=message.seq,
        domain=message.domain,
        attempt=number,
        delivered=attempt.delivered,
        http_status=attempt.status,
        error_code=attempt.error_code,
        seconds=attempt.seconds,
    )
