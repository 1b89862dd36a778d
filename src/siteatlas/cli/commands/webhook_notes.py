"""What `siteatlas webhooks` prints besides its results: what else a receiver needs to get messages.

The deliveries are made by the service and the workers, whose environment can differ from that of
the shell in which a command runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from siteatlas.cli.terminal.errors import keep_to_json, print_error_with_advice, trace
from siteatlas.cli.terminal.output import print_message
from siteatlas.errors import EgressDenied
from siteatlas.insights.webhooks import DeliveryView, WebhookView
from siteatlas.net.address import parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Settings
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.domains import find_domains
from siteatlas.storage.statements.webhook_deliveries import NewDelivery

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
    if policy.refusal(address) is not None:
        return False
    return policy.is_own(address) or EgressPolicy().refusal(address) is not None


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
    """How to permit a receiver that the egress policy refuses."""
    where = parse_url(url).host_port
    return f"If this is your own receiver, allow it with SITEATLAS_EGRESS_ALLOW={where}"
