"""Events of the change feed as shown to clients, and the page that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from siteatlas.scanner.reading.lastmod_text import restored_text

# The same date in two forms is one field to a reader.
FIELD_OF_KEY = {"lastmod_text": "lastmod"}
FIELDS = ("lastmod", "changefreq", "priority", "extras")
HASH_BITS = 64


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One event. Those of documents and domains have no `url`; their `data` says more.

    `before` and `after` are the whole listed state; `fields` names what differs. The old state was
    last seen at `not_before`, the new one at `not_after`.
    """

    id: str
    seq: int
    kind: str
    domain: str
    url: str | None
    sitemap: str | None
    sitemap_id: UUID | None
    previous_sitemap: str | None
    previous_sitemap_id: UUID | None
    scan_id: int | None
    not_before: datetime | None
    not_after: datetime | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: list[str]
    evidence: str | None
    data: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """The events of the numbers from `from_seq` to `to_seq`, and perhaps some of the next one.

    `to_seq` is the last number whose events are complete with this page; it is smaller than
    `from_seq` when the page completes none. `at_head` says that nothing follows at the moment.
    """

    items: list[ChangeView]
    from_seq: int
    to_seq: int
    next_cursor: str
    at_head: bool
    feed_id: UUID
    retained_from: int


def change_view(row: Any) -> ChangeView:
    """The view of one row of the feed."""
    is_of_url = row.url is not None
    before, after = shown_state(row.before), shown_state(row.after)
    return ChangeView(
        id=_change_id(row) if is_of_url else f"event-{row.event_id}",
        seq=row.number,
        kind=row.kind,
        domain=row.domain,
        url=row.url,
        sitemap=row.sitemap,
        sitemap_id=row.sitemap_id,
        previous_sitemap=row.previous_sitemap,
        previous_sitemap_id=row.previous_sitemap_id,
        scan_id=row.scan_id,
        not_before=row.not_before,
        not_after=row.not_after,
        before=before,
        after=after,
        fields=changed_fields(before, after),
        evidence=row.evidence,
        data=row.data,
    )


def _change_id(row: Any) -> str:
    """The id of a change: a scan changes an entry once."""
    entry = row.url_hash % (1 << HASH_BITS)
    return f"change-{row.scan_id}-{row.sitemap_id.hex}-{entry:016x}"


def shown_state(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """The values listed for a URL in the form that lists of URLs have, from the stored one."""
    if not state or not {"lastmod", "lastmod_text"} & state.keys():
        return state
    moment = state.get("lastmod")
    lastmod = None if moment is None else datetime.fromisoformat(moment)
    listed = restored_text(lastmod, state.get("lastmod_text"))
    dates = {"lastmod": lastmod, "lastmod_text": listed}
    rest = {name: value for name, value in state.items() if name not in dates}
    return {name: value for name, value in dates.items() if value is not None} | rest


def changed_fields(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The fields that differ between two states of an entry; none without both of them."""
    if before is None or after is None:
        return []
    keys = before.keys() | after.keys()
    differing = {FIELD_OF_KEY.get(key, key) for key in keys if before.get(key) != after.get(key)}
    return [name for name in FIELDS if name in differing] + sorted(differing - set(FIELDS))
