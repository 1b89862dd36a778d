"""What the routes are given by `main`: the way out, the settings, and how to wake the consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from siteatlas.net.egress import EgressPolicy
from siteatlas.settings import Settings


@dataclass(slots=True)
class ApiContext:
    """`wake` is None in a process that does not work on jobs itself."""

    settings: Settings
    policy: EgressPolicy
    wake: Callable[[], None] | None = None

    def jobs_waiting(self) -> None:
        """Tell the consumer of this process, if there is one, that a job was committed."""
        if self.wake is not None:
            self.wake()


async def api_context(request: Request) -> ApiContext:
    """The context that `main` put into the application."""
    context = request.app.state.api
    assert isinstance(context, ApiContext)
    return context


Context = Annotated[ApiContext, Depends(api_context)]
