"""The newest events of the change feed as an Atom document (RFC 4287), for feed readers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import UUID
from xml.sax.saxutils import escape, quoteattr

from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.latest_changes import PublishedEvent

MEDIA_TYPE = "application/atom+xml"
# The time of a feed without entries, which must have one.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
INCOMPLETE = "Incomplete: not all events could be read. The change feed contains all of them."
MAX_VALUE_CHARS = 200
URL_CHARS = "%/:?#[]@!$&'()*,;=+-._~"
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class AtomFeed:
    """A feed of one site, or of all; `address` is where it was requested, `base` is its origin."""

    feed_id: UUID
    title: str
    name: str
    address: str
    base: str
    events: Sequence[PublishedEvent]
    is_complete: bool = True

    def document(self) -> bytes:
        """The Atom document."""
        updated = max((found.published_at for found in self.events), default=NEVER)
        lines = [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<feed xmlns="http://www.w3.org/2005/Atom">',
            f"<id>urn:siteatlas:{self.feed_id}:{_text(quote(self.name))}</id>",
            f"<title>{_text(self.title)}</title>",
            *([] if self.is_complete else [f"<subtitle>{INCOMPLETE}</subtitle>"]),
            f"<updated>{_time(updated)}</updated>",
            "<author><name>Siteatlas</name></author>",
            _link("self", self.address, MEDIA_TYPE),
        ]
        for found in self.events:
            lines += self._entry(found.event, found.published_at)
        lines.append("</feed>\n")
        return "\n".join(lines).encode()

    def _entry(self, event: ChangeView, published_at: datetime) -> Iterator[str]:
        """The lines of one entry of the Atom document."""
        changes = f"{self.base}/api/v3/domains/{quote(event.domain)}/changes?after={event.seq - 1}"
        about = event.url or event.sitemap
        details = "\n".join(_details(event))
        yield "<entry>"
        yield f"<id>urn:siteatlas:{self.feed_id}:{_text(event.id)}</id>"
        yield f"<title>{_text(f'{event.kind}: {about or event.domain}')}</title>"
        yield f"<updated>{_time(published_at)}</updated>"
        yield f"<category term={quoteattr(event.kind)}/>"
        yield _link("alternate", about or changes)
        yield _link("related", changes, "application/json")
        yield f'<content type="text">{_text(details)}</content>'
        yield "</entry>"


def _details(event: ChangeView) -> Iterable[str]:
    """What an entry of the Atom document says of its event, a line each."""
    yield f"Site: {event.domain}"
    if event.sitemap is not None:
        yield f"Sitemap: {event.sitemap}"
    if event.previous_sitemap is not None:
        yield f"Previous sitemap: {event.previous_sitemap}"
    for field in event.fields:
        before, after = (event.before or {}).get(field), (event.after or {}).get(field)
        yield f"{field}: {_shortened(before)} -> {_shortened(after)}"
    if event.evidence is not None:
        yield f"Evidence: {event.evidence}"


def _shortened(value: object) -> str:
    """A listed value in the details of an entry; extras may be long."""
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def _link(relation: str, address: str, media_type: str | None = None) -> str:
    """A link of the Atom document; its address is percent-encoded where that is missing."""
    kind = "" if media_type is None else f' type="{media_type}"'
    href = quoteattr(quote(address, safe=URL_CHARS))
    return f'<link rel="{relation}"{kind} href={href}/>'


def _text(text: str) -> str:
    """A text of the Atom document, without characters that XML cannot hold."""
    return escape(NOT_IN_XML.sub("\ufffd", text))


def _time(moment: datetime) -> str:
    """A time of the Atom document."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
