"""Audit events of commands: running one on the machine needs no key, but is recorded."""

from __future__ import annotations

import os
import pwd
import socket

from siteatlas.storage.session import AsyncConnection, AsyncSession
from siteatlas.storage.statements.audit import insert_audit_event

DONE = 200


async def record_command(
    session: AsyncSession | AsyncConnection, command: str, target: str | None = None
) -> None:
    """Add the event of a command, with the system user and the machine that ran it."""
    await insert_audit_event(
        session,
        user_name=_system_user(),
        address=socket.gethostname(),
        action=command,
        target=target,
        status=DONE,
    )


def _system_user() -> str:
    """The name of the user that runs this process; its number if it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
