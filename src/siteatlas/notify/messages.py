"""The messages of webhooks: their ids and their bodies, from the events of the change feed.

A message is built for each attempt; its id depends only on the feed, so that it is the same each
time. A body is smaller than 20 kB: what does not fit is left out, and `changes_url` leads to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import orjson

from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.webhook_messages import MessageFacts, MessagePlace
from siteatlas.storage.models import MessageType, Scan

MAX_BODY_BYTES = 20_000
# Counts, addresses and times take the rest.
MAX_SAMPLE_BYTES = 14_000
MAX_DIFF_CHARS = 2_000
MAX_HELD_DOCUMENTS = 10
ID_CHARS = 32


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


def make_test_message(endpoint_id: UUID, nonce: UUID) -> Message:
    """The message of type `webhook.test`."""
    kind = MessageType.TEST
    data = {"webhook_id": str(endpoint_id), "text": "This is a test message from Siteatlas."}
    return Message(
        id=_message_id(endpoint_id, nonce, kind),
        type=kind,
        body=_body(kind, datetime.now(UTC), data),
    )


def _message_id(*parts: object) -> str:
    """An id that is the same whenever it is made from the same parts; without a full stop."""
    text = ":".join(map(str, parts))
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:ID_CHARS]}"


def _body(kind: MessageType, at: datetime, data: Mapping[str, Any]) -> bytes:
    """The body of a message in the form of Standard Webhooks."""
    return orjson.dumps(
        {"type": kind.value, "timestamp": at, "data": data}, option=orjson.OPT_UTC_Z
    )


def _common_data(facts: MessageFacts, public_url: str) -> dict[str, Any]:
    """What all messages about the feed have."""
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
    """What messages of one type have."""
    if facts.place.type is MessageType.SCAN_FAILED:
        return {"error_code": _first(facts.events).get("error_code")}
    if facts.place.type is MessageType.REMOVALS_HELD:
        return _held_data(_first(facts.events))
    if facts.place.type is MessageType.ROBOTS_CHANGED:
        return {"files": _fitting(map(_robots_data, facts.events))}
    assert facts.scan is not None
    return _scan_data(facts.scan, facts.samples)


def _first(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The data of the only event of a message; none if retention removed it."""
    return events[0] if events else {}


def _scan_data(scan: Scan, samples: list[ChangeView]) -> dict[str, Any]:
    """The data of a message about a published scan."""
    return {
        "scope": scan.scope.value,
        "partial": scan.partial,
        "reasons": scan.reasons[:MAX_HELD_DOCUMENTS],
        "url_count": scan.url_count,
        "sitemap_count": scan.sitemap_count,
        "counts": scan.change_counts or {},
        "samples": _fitting(map(_sample, samples)),
        "started_at": scan.started_at,
        "finished_at": scan.finished_at,
    }


def _sample(event: ChangeView) -> dict[str, Any]:
    """An event as one of the samples of a message."""
    return {"id": event.id, "kind": event.kind, "url": event.url, "sitemap": event.sitemap}


def _held_data(event: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a message about held removals: how many, and which documents hold them."""
    documents = list(event.get("documents", ()))
    shown = _fitting(documents[:MAX_HELD_DOCUMENTS])
    more = event.get("more_documents", 0) + len(documents) - len(shown)
    return {"held_count": event.get("count"), "documents": shown, "more_documents": more}


def _robots_data(event: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a message about a changed robots.txt; a long diff is truncated."""
    diff = event.get("diff") or ""
    is_cut = bool(event.get("diff_truncated")) or len(diff) > MAX_DIFF_CHARS
    return {**event, "diff": diff[:MAX_DIFF_CHARS] or None, "diff_truncated": is_cut}


def _fitting(items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first items that fit into a message together."""
    left, kept = MAX_SAMPLE_BYTES, []
    for item in items:
        left -= len(orjson.dumps(item)) + 1
        if left < 0:
            break
        kept.append(item)
    return kept
