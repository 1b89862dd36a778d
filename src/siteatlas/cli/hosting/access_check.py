"""Decides at startup who may enter: the operator's key, and which addresses need one."""

from __future__ import annotations

from siteatlas.access.installation import Installation
from siteatlas.access.keys import adopt_admin_key
from siteatlas.cli.hosting.listener import CREATE_KEY, is_loopback
from siteatlas.cli.terminal.output import print_warning
from siteatlas.errors import BindRefused
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

INSECURE = (
    "WARNING: --insecure-no-auth: everyone who can reach {host} can use this service, without an "
    "access key."
)


async def check_access(settings: Settings, *, insecure_no_auth: bool = False) -> Installation:
    """The state of the installation; BindRefused if the address to listen on needs a key."""
    if settings.admin_key_file is not None:
        async with get_session() as session, session.begin():
            await adopt_admin_key(session, settings.admin_key_file)
    installation = Installation()
    if await installation.is_closed() or is_loopback(settings.host):
        return installation
    if not insecure_no_auth:
        raise BindRefused(
            f"{settings.host} is not a loopback address, so the service needs an access key. "
            f"Create one with: {CREATE_KEY}"
        )
    print_warning(INSECURE.format(host=settings.host), style="bold red")
    return installation
