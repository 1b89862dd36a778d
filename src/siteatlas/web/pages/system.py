"""The state of the installation: workers, queue, database, and the settings with their source."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from siteatlas.access.marks import READ
from siteatlas.insights.workers import list_workers
from siteatlas.settings import Settings, environment_name
from siteatlas.settings_display import displayed_value
from siteatlas.web.context import Context, ReadSession
from siteatlas.web.templating import render

router = APIRouter(include_in_schema=False)


@router.get("/system", dependencies=[READ], response_class=HTMLResponse)
async def show_system(request: Request, session: ReadSession, context: Context) -> HTMLResponse:
    """What runs where, and how it is set up."""
    load, database = await context.queue_load.run(), await context.database_state.run()
    return render(
        request,
        "system.html",
        workers=await list_workers(session),
        load=load,
        database=database,
        settings=_settings(context.settings),
    )


def _settings(settings: Settings) -> list[tuple[str, object, str]]:
    """Each setting: the name of its environment variable, its value, and whether it was set."""
    return [
        (
            environment_name(name),
            displayed_value(name, value),
            "set" if name in settings.given else "default",
        )
        for name, value in settings.items()
    ]
