"""The messages of webhooks: their ids and their bodies, from the events of the change feed.

A message is built for each attempt; its id depends only on the feed, so that it is the same each
time. A body is smaller than 20 kB: what does not fit is left out, and `changes_url` leads to it.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import orjson

from siteatlas.catalog.change_feed import ChangeView
from siteatlas.catalog.webhooks import ClaimedEndpoint, MessageFacts, MessagePlace, NewDelivery
from siteatlas.errors import SiteatlasError
from siteatlas.net.address import parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import DnsResolver, configured_proxy
from siteatlas.net.posting import PostClient
from siteatlas.settings import Settings
from siteatlas.storage.models import DisabledReason, MessageType, Scan

MAX_BODY_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Message:
    """A message; with its body it is ready to be signed and sent."""

    id: str
    type: MessageType
    body: bytes
    seq: int | None = None
    rank: int = 0
    domain: str | None = None


def feed_message(facts: MessageFacts, feed_id: UUID, public_url: str) -> Message:
    """The message about one number of the feed."""
    data = _common_data(facts, public_url) | _type_data(facts)
    body = _body(facts.place.type, facts.at, data)
    return replace(empty_message(facts.place, feed_id), body=body, domain=facts.domain)


def empty_message(place: MessagePlace, feed_id: UUID) -> Message:
    """A message whose body is not built yet, as the log names it."""
    return Message(
        id=_message_id(feed_id, place.seq, place.type),
        type=place.type,
        body=b"",
        seq=place.seq,
        rank=place.rank,
    )


def make_test_message(endpoint_id: UUID, nonce: UUID, now: datetime) -> Message:
    """The message of type `webhook.test`."""
    kind = MessageType.TEST
    data = {"webhook_id": str(endpoint_id), "text": "This is a test message from Siteatlas."}
    return Message(
        id=_message_id(endpoint_id, nonce, kind),
        type=kind,
        body=_body(kind, now, data),
    )


def _message_id(*parts: object) -> str:
    """An id that is the same whenever it is made from the same parts; without a full stop."""
    text = ":".join(map(str, parts))
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _body(kind: MessageType, at: datetime, data: Mapping[str, Any]) -> bytes:
    return orjson.dumps(
        {"type": kind.value, "timestamp": at, "data": data}, option=orjson.OPT_UTC_Z
    )


def _common_data(facts: MessageFacts, public_url: str) -> dict[str, Any]:
    seq, domain = facts.place.seq, quote(facts.domain)
    return {
        "domain": facts.domain,
        "scan_id": facts.scan_id,
        "from_seq": seq,
        "to_seq": seq,
        "previous_seq": facts.previous_seq,
        "changes_url": f"{public_url}/api/v3/domains/{domain}/changes?after={seq - 1}",
    }


def _type_data(facts: MessageFacts) -> dict[str, Any]:
    if facts.place.type is MessageType.SCAN_FAILED:
        return {"error_code": _first(facts.events).get("error_code")}
    if facts.place.type is MessageType.REMOVALS_HELD:
        return _held_data(_first(facts.events))
    if facts.place.type is MessageType.ROBOTS_CHANGED:
        return {"files": _fitting(map(_robots_data, facts.events))}
    if facts.place.type in {MessageType.FINDINGS_NEW, MessageType.FINDINGS_RESOLVED}:
        return {"findings": _fitting(map(_finding_data, facts.events))}
    assert facts.scan is not None
    return _scan_data(facts.scan, facts.samples)


def _first(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The data of the only event of a message; none if retention removed it."""
    return events[0] if events else {}


def _scan_data(scan: Scan, samples: list[ChangeView]) -> dict[str, Any]:
    return {
        "scope": scan.scope.value,
        "partial": scan.partial,
        "reasons": scan.reasons[:10],
        "url_count": scan.url_count,
        "sitemap_count": scan.sitemap_count,
        "counts": scan.change_counts or {},
        "samples": _fitting(map(_sample, samples)),
        "started_at": scan.started_at,
        "finished_at": scan.finished_at,
    }


def _sample(event: ChangeView) -> dict[str, Any]:
    return {"id": event.id, "kind": event.kind, "url": event.url, "sitemap": event.sitemap}


def _finding_data(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "samples" and value != ""}


def _held_data(event: Mapping[str, Any]) -> dict[str, Any]:
    documents = list(event.get("documents", ()))
    shown = _fitting(documents[:10])
    more = event.get("more_documents", 0) + len(documents) - len(shown)
    return {"held_count": event.get("count"), "documents": shown, "more_documents": more}


def _robots_data(event: Mapping[str, Any]) -> dict[str, Any]:
    diff = event.get("diff") or ""
    shown = diff[:2_000]
    is_cut = bool(event.get("diff_truncated")) or len(diff) > len(shown)
    return {**event, "diff": shown or None, "diff_truncated": is_cut}


def _fitting(items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # Counts, addresses and times take the rest of `MAX_BODY_BYTES`.
    left, kept = 14_000, []
    for item in items:
        left -= len(orjson.dumps(item)) + 1
        if left < 0:
            break
        kept.append(item)
    return kept


ATTEMPT_SECONDS = 15.0
MINUTE, HOUR = 60.0, 3600.0
# The delays of Standard Webhooks 1.0 after each failed attempt but the last; three days in all.
RETRY_DELAYS = (
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended; without a response the status is None and there is an error code."""

    status: int | None
    error_code: str | None
    seconds: float
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted the message; a redirect is a failure."""
        return self.status in range(200, 300)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a failed attempt: the delay of the next one, or the end of trying."""

    retry_seconds: float
    disable: DisabledReason | None


def judge_failure(attempt: Attempt, failures: int) -> Verdict:
    """What a failed attempt means after so many earlier ones at the same message.

    `Retry-After` can only make the delay longer.
    """
    if attempt.status == 410:
        return Verdict(0.0, DisabledReason.GONE)
    if failures >= len(RETRY_DELAYS):
        return Verdict(0.0, DisabledReason.FAILING)
    delay = RETRY_DELAYS[failures] * random.uniform(0.9, 1.1)
    return Verdict(max(delay, attempt.retry_after or 0.0), None)


SECRET_PREFIX = "whsec_"  # noqa: S105 it says what follows


def generate_secret() -> str:
    """A new random secret in the form that libraries for receivers take."""
    return SECRET_PREFIX + b64encode(secrets.token_bytes(32)).decode()


def signed_headers(
    message_id: str, timestamp: int, body: bytes, keys: Iterable[str]
) -> dict[str, str]:
    """The headers of one attempt; with two secrets there are two signatures, the newest first."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(signed, key) for key in keys),
    }


def _signature(signed: bytes, secret: str) -> str:
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    return f"v1,{b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


@dataclass(frozen=True, slots=True)
class Sender:
    """A connection to one endpoint."""

    client: PostClient
    secrets: tuple[str, ...]

    async def send(self, message: Message, now: datetime) -> Attempt:
        """One attempt to deliver a message. Nothing is raised: every failure is an outcome."""
        # The time of the database: receivers refuse what is minutes off, as our clock may be.
        headers = signed_headers(message.id, int(now.timestamp()), message.body, self.secrets)
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
