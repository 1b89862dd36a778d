"""The columns of the lists that `siteatlas webhooks` prints."""

from __future__ import annotations

from siteatlas.cli.terminal.output import WIDE, Column, ColumnKind
from siteatlas.cli.terminal.paged_list import TableLayout
from siteatlas.insights.webhooks import DeliveryView, WebhookView

ALL_SITES = "all"
WEBHOOKS: TableLayout[WebhookView] = TableLayout(
    columns=[
        Column("ID", kind=ColumnKind.NAME),
        Column("URL", kind=ColumnKind.URL),
        Column("TYPES", from_width=WIDE),
        Column("SITES"),
        Column("STATUS", kind=ColumnKind.STATUS),
        Column("BEHIND", kind=ColumnKind.COUNT),
        Column("DELIVERED", kind=ColumnKind.AGE),
    ],
    row=lambda w: (
        w.id,
        w.url,
        ",".join(w.types),
        ",".join(w.domains or [ALL_SITES]),
        w.status,
        w.head_seq - w.delivered_seq,
        w.last_delivered_at,
    ),
    none="There are no webhooks.",
    none_matches="No webhook matches.",
    record=WebhookView,
)
DELIVERIES: TableLayout[DeliveryView] = TableLayout(
    columns=[
        Column("WHEN", kind=ColumnKind.AGE),
        Column("TYPE"),
        Column("SITE"),
        Column("NUMBER", kind=ColumnKind.COUNT),
        Column("ATTEMPT", kind=ColumnKind.COUNT),
        Column("STATUS", kind=ColumnKind.COUNT),
        Column("ERROR"),
        Column("MESSAGE", kind=ColumnKind.NAME, from_width=WIDE),
    ],
    row=lambda d: (
        d.created_at,
        d.type,
        d.domain,
        d.seq,
        d.attempt,
        d.http_status,
        d.error_code,
        d.message_id,
    ),
    none="Nothing has been sent to this webhook yet.",
    none_matches="No delivery matches.",
    record=DeliveryView,
)
