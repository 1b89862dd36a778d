"""`siteatlas webhooks`: manage webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer

from siteatlas.access.audit import record_command
from siteatlas.catalog.domains import find_domains
from siteatlas.catalog.webhooks import (
    FEED_TYPES,
    DeliveryView,
    NewDelivery,
    WebhookView,
    find_failure,
    find_webhook,
    list_deliveries,
    list_webhooks,
)
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import keep_to_json, print_error_with_advice, run, trace
from siteatlas.cli.terminal.filters import MOMENT_FORMS, require_reached, typed_moment
from siteatlas.cli.terminal.options import (
    JsonOption,
    YesOption,
    require_confirmation,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    print_message,
    write_details,
    write_json,
    write_line,
)
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    print_list,
    with_list_options,
)
from siteatlas.errors import EgressDenied, InputError
from siteatlas.net.address import parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.notify.endpoints import (
    EndpointRequest,
    change_endpoint,
    create_endpoint,
    delete_endpoint,
    deliver_test,
    replay,
    rotate_secret,
)
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID
from siteatlas.storage.session import AsyncSession, get_session

ADD_FIRST = "Messages about a site start once it is added: siteatlas domains add SITE"
SAME_SETTING = "The service and the workers need the same SITEATLAS_EGRESS_ALLOW."


def outcome_of(delivery: NewDelivery | DeliveryView) -> int | str | None:
    """The HTTP status of an attempt, or the error code if there was no response."""
    return delivery.http_status or delivery.error_code


@contextmanager
def receiver_refusals(url: str | None) -> Iterator[None]:
    """End the command with advice about its receiver if the block raises EgressDenied."""
    try:
        yield
    except EgressDenied as error:
        keep_to_json()
        trace(error)
        print_error_with_advice(error, error.message, _advice_for_receiver(url or ""))
        raise typer.Exit(error.exit_code) from error


def print_setting_note(settings: Settings, url: str) -> None:
    """Say that the service needs the setting too, if it is what permits this receiver."""
    if is_permitted_by_setting(settings, url):
        print_message(SAME_SETTING)


def is_permitted_by_setting(settings: Settings, url: str) -> bool:
    """Whether SITEATLAS_EGRESS_ALLOW names this receiver or permits what is refused by default."""
    address, policy = parse_url(url), EgressPolicy.from_text(settings.egress_allow)
    if policy.refusal(address.host, address.port) is not None:
        return False
    return policy.is_own(address) or EgressPolicy().refusal(address.host, address.port) is not None


def print_test_result(delivery: NewDelivery, url: str) -> None:
    """Print the result of a test message, with advice if the receiver is refused."""
    if delivery.delivered:
        print_message(f"Delivered in {delivery.seconds:.2f} s (status {outcome_of(delivery)}).")
        return
    print_message(f"Not delivered ({outcome_of(delivery)}).")
    if delivery.error_code == EgressDenied.code:
        print_message(_advice_for_receiver(url))


def print_failure_note(failure: DeliveryView | None) -> None:
    """Say why the deliveries of the service fail, if they do."""
    if failure is not None:
        outcome = outcome_of(failure)
        print_message(f"The service fails to deliver to this webhook; last result: {outcome}.")


async def find_unstored_sites(session: AsyncSession, webhook: WebhookView) -> list[str]:
    """The sites that a webhook is limited to and that are not stored, by name."""
    names = webhook.domains or []
    stored = {domain.domain for domain in await find_domains(session, names)}
    return [name for name in names if name not in stored]


def print_unstored_sites(names: list[str]) -> None:
    """Say that there are no messages about these sites yet, if there are any such sites."""
    if names:
        print_message(f"Not stored yet: {', '.join(names)}. {ADD_FIRST}")


def _advice_for_receiver(url: str) -> str:
    where = parse_url(url).host_port
    return f"If this is your own receiver, allow it with SITEATLAS_EGRESS_ALLOW={where}"


ALL_SITES = "all"
WEBHOOKS: TableLayout[WebhookView] = TableLayout(
    columns=[
        Column("ID", kind=ColumnKind.NAME, value="id"),
        Column("URL", kind=ColumnKind.URL, value="url"),
        Column("TYPES", from_width=WIDE, value=lambda w: ",".join(w.types)),
        Column("SITES", value=lambda w: ",".join(w.domains or [ALL_SITES])),
        Column("STATUS", kind=ColumnKind.STATUS, value="status"),
        Column("BEHIND", kind=ColumnKind.COUNT, value=lambda w: w.head_seq - w.delivered_seq),
        Column("DELIVERED", kind=ColumnKind.AGE, value="last_delivered_at"),
    ],
    none="There are no webhooks.",
    none_matches="No webhook matches.",
    record=WebhookView,
)
DELIVERIES: TableLayout[DeliveryView] = TableLayout(
    columns=[
        Column("WHEN", kind=ColumnKind.AGE, value="created_at"),
        Column("TYPE", value="type"),
        Column("SITE", value="domain"),
        Column("NUMBER", kind=ColumnKind.COUNT, value="seq"),
        Column("ATTEMPT", kind=ColumnKind.COUNT, value="attempt"),
        Column("STATUS", kind=ColumnKind.COUNT, value="http_status"),
        Column("ERROR", value="error_code"),
        Column("MESSAGE", kind=ColumnKind.NAME, from_width=WIDE, value="message_id"),
    ],
    none="Nothing has been sent to this webhook yet.",
    none_matches="No delivery matches.",
    record=DeliveryView,
    csv=(
        *("id", "message_id", "type", "seq", "domain", "attempt", "delivered", "http_status"),
        *("error_code", "seconds", "created_at"),
    ),
)


# An address that is refused is the error of the command; the warning in the log would repeat it.
LOG_LEVEL = "error"
STORE_IT = "Store the secret now: it is not shown again."

WebhookArgument = Annotated[
    UUID, typer.Argument(metavar="ID", help="Id of the webhook; see siteatlas webhooks list.")
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help=f"Only messages of this type; repeatable. Types: {', '.join(FEED_TYPES)}.",
    ),
]
SitesOption = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="SITE", help="Only about this site; repeatable."),
]
DescriptionOption = Annotated[str | None, typer.Option(help="What the webhook is for.")]

app = typer.Typer(help="Manage webhooks.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def create(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address that messages are sent to by POST.")
    ],
    types: TypesOption = None,
    sites: SitesOption = None,
    description: DescriptionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a webhook and print its secret once. It receives everything published from now on."""
    settings = prepare(log_level=LOG_LEVEL)
    request = EndpointRequest(url, types, sites, description or "")
    with receiver_refusals(url):
        view, secret, unstored = run(_create(settings, request))
    if as_json:
        write_json(asdict(view) | {"secret": secret})
    else:
        write_line(secret)
        print_message(f"Created webhook {view.id}.")
    print_message(STORE_IT)
    print_setting_note(settings, view.url)
    print_unstored_sites(unstored)


@app.command("list")
@with_list_options
def list_(
    *,
    request: ListRequest,
) -> None:
    """List webhooks, including disabled ones."""
    run(print_list(prepare(), request, WEBHOOKS, list_webhooks))


@app.command()
def show(webhook_id: WebhookArgument, as_json: JsonOption = False) -> None:
    """Show a webhook: its messages, its position, and whether deliveries fail."""
    view = run(_find(prepare(), webhook_id))
    if as_json:
        write_json(view)
        return
    details = asdict(view) | {"types": ", ".join(view.types)}
    details["domains"] = ", ".join(view.domains or [ALL_SITES])
    write_details((name.replace("_", " "), value) for name, value in details.items())


@app.command()
def change(
    webhook_id: WebhookArgument,
    *,
    url: Annotated[
        str | None, typer.Option(help="Address that messages are sent to by POST.")
    ] = None,
    types: TypesOption = None,
    sites: SitesOption = None,
    all_sites: Annotated[bool, typer.Option("--all-sites", help="About all sites.")] = False,
    description: DescriptionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the address or the messages of a webhook. The next delivery is attempted at once."""
    if sites and all_sites:
        raise InputError("Use either --site or --all-sites, not both.")
    given: dict[str, Any] = {
        "url": url,
        "types": types,
        "domains": sites,
        "description": description,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if all_sites:
        changes["domains"] = None
    if not changes:
        raise InputError("Nothing to change: use --url, --type, --site or --description.")
    settings = prepare(log_level=LOG_LEVEL)
    with receiver_refusals(url):
        view = run(_apply(settings, webhook_id, changes))
    _write_changed(view, "Changed", as_json=as_json)
    if url is not None:
        print_setting_note(settings, view.url)


@app.command()
def enable(webhook_id: WebhookArgument, as_json: JsonOption = False) -> None:
    """Deliver to a disabled webhook again, from where deliveries stopped."""
    view = run(_apply(prepare(), webhook_id, {"enabled": True}))
    _write_changed(view, "Enabled", as_json=as_json)


@app.command()
def disable(webhook_id: WebhookArgument, as_json: JsonOption = False) -> None:
    """Stop deliveries to a webhook."""
    view = run(_apply(prepare(), webhook_id, {"enabled": False}))
    _write_changed(view, "Disabled", as_json=as_json)


@app.command()
def rotate(webhook_id: WebhookArgument) -> None:
    """Replace the secret and print the new one once. The old one stays valid for 24 hours."""
    write_line(run(_rotate(prepare(), webhook_id)))
    print_message(STORE_IT)


@app.command("replay")
def replay_(
    webhook_id: WebhookArgument,
    since: Annotated[
        datetime,
        typer.Option(metavar="WHEN", parser=typed_moment, help=f"From when: {MOMENT_FORMS}."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Deliver the messages after a time or a sequence number of the change feed again."""
    settings = prepare()

    async def move(session: AsyncSession) -> None:
        """Set the position of the webhook back, for `siteatlas webhooks replay`."""
        await require_reached(session, since)
        await replay(session, webhook_id, **_replay_start(since))

    view = run(_change(settings, webhook_id, "webhooks replay", move))
    line = f"Messages after sequence number {view.delivered_seq} will be delivered again."
    write_json(view) if as_json else print_message(line)


def _replay_start(since: datetime | int) -> dict[str, Any]:
    """Where `siteatlas webhooks replay` starts: after a number of the feed, or at a time."""
    return {"after_seq": since} if isinstance(since, int) else {"since": since}


@app.command("test")
def send_test(webhook_id: WebhookArgument, as_json: JsonOption = False) -> None:
    """Send a test message now; exits with 1 unless the receiver accepts it."""
    settings = prepare(log_level=LOG_LEVEL)
    delivery, view, failure = run(_test(settings, webhook_id))
    if as_json:
        write_json(delivery)
    else:
        print_test_result(delivery, view.url)
    print_setting_note(settings, view.url)
    print_failure_note(failure)
    if not delivery.delivered:
        raise typer.Exit(1)


@app.command()
@with_list_options
def deliveries(
    webhook_id: WebhookArgument,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed attempts.")] = False,
    request: ListRequest,
) -> None:
    """List the attempts to deliver messages to a webhook, newest first."""
    wanted = False if failed else None
    read = partial(list_deliveries, endpoint_id=webhook_id, delivered=wanted)
    run(print_list(prepare(), request, DELIVERIES.filtered_by(wanted), read))


@app.command()
def delete(
    webhook_id: WebhookArgument,
    yes: YesOption = False,
) -> None:
    """Delete a webhook and the log of its deliveries."""
    settings = prepare()
    require_confirmation(f"Delete webhook {webhook_id}?", "This deletes the webhook.", yes=yes)
    run(_delete(settings, webhook_id))
    print_message(f"Deleted webhook {webhook_id}.")


def _write_changed(view: WebhookView, action: str, *, as_json: bool) -> None:
    """Report a webhook that was changed: a line, or the webhook as JSON."""
    if as_json:
        write_json(view)
    else:
        print_message(f"{action} webhook {view.id}; it is {view.status}.")


async def _create(
    settings: Settings, request: EndpointRequest
) -> tuple[WebhookView, str, list[str]]:
    """Create a webhook of the local user; also its secret, and which of its sites are unknown."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    async with opened(settings), get_session() as session, session.begin():
        created = await create_endpoint(session, request, policy, LOCAL_USER_ID)
        await record_command(session, "webhooks create", str(created.id))
        view = await find_webhook(session, created.id)
        return view, created.secret, await find_unstored_sites(session, view)


async def _find(settings: Settings, webhook_id: UUID) -> WebhookView:
    async with opened(settings), get_session() as session, session.begin():
        return await find_webhook(session, webhook_id)


async def _change(
    settings: Settings,
    webhook_id: UUID,
    command: str,
    act: Callable[[AsyncSession], Awaitable[None]],
) -> WebhookView:
    """Do something with a webhook on behalf of a command; the webhook as it is then."""
    async with opened(settings), get_session() as session, session.begin():
        await act(session)
        await record_command(session, command, str(webhook_id))
        return await find_webhook(session, webhook_id)


async def _apply(settings: Settings, webhook_id: UUID, changes: dict[str, Any]) -> WebhookView:
    policy = EgressPolicy.from_text(settings.egress_allow)

    async def apply(session: AsyncSession) -> None:
        """Change the webhook."""
        await change_endpoint(session, webhook_id, policy, changes)

    return await _change(settings, webhook_id, "webhooks change", apply)


async def _rotate(settings: Settings, webhook_id: UUID) -> str:
    async with opened(settings), get_session() as session, session.begin():
        await record_command(session, "webhooks rotate", str(webhook_id))
        return await rotate_secret(session, webhook_id)


async def _test(
    settings: Settings, webhook_id: UUID
) -> tuple[NewDelivery, WebhookView, DeliveryView | None]:
    """Send a test message for `siteatlas webhooks test`; also why the service fails to deliver."""
    async with opened(settings):
        policy = EgressPolicy.from_text(settings.egress_allow)
        delivery = await deliver_test(webhook_id, settings, policy)
        async with get_session() as session, session.begin():
            view = await find_webhook(session, webhook_id)
            return delivery, view, await find_failure(session, view)


async def _delete(settings: Settings, webhook_id: UUID) -> None:
    async with opened(settings), get_session() as session, session.begin():
        await delete_endpoint(session, webhook_id)
        await record_command(session, "webhooks delete", str(webhook_id))
