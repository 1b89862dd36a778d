"""A task that runs in the background of a block and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger

log = get_logger("aio")


@asynccontextmanager
async def background_task(
    work: Coroutine[object, object, None], *, essential: bool = False
) -> AsyncIterator[None]:
    """Run `work` while the block runs, and cancel it when the block ends.

    A crash of `work` is logged. If it is essential, the block is also cancelled, and the exception
    is raised where the block ends.
    """
    task = asyncio.create_task(work, name=getattr(work, "__qualname__", None))
    watch = _CrashWatch(asyncio.current_task() if essential else None)
    task.add_done_callback(watch.on_done)
    try:
        yield
    except asyncio.CancelledError:
        if not watch.is_only_cancel:
            raise
    finally:
        watch.detach()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if watch.crash is not None:
        raise watch.crash


class _CrashWatch:
    """Logs the crash of a task and cancels `owner`, the task that cannot do without it."""

    def __init__(self, owner: asyncio.Task[object] | None) -> None:
        self._owner = owner
        self._earlier_cancels = owner.cancelling() if owner else 0
        self.crash: BaseException | None = None

    def on_done(self, task: asyncio.Task[None]) -> None:
        """Handle the end of the task: log a crash and cancel the owner."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        _log_crash(task.get_name(), error)
        if self._owner is not None:
            self.crash = error
            self._owner.cancel()

    @property
    def is_only_cancel(self) -> bool:
        """Whether the owner was cancelled because of the crash and for no other reason."""
        if self._owner is None or self.crash is None:
            return False
        return self._owner.cancelling() - 1 <= self._earlier_cancels

    def detach(self) -> None:
        """Undo the cancellation of the owner; since the block is over, a crash is only logged."""
        if self._owner is not None and self.crash is not None:
            self._owner.uncancel()
        self._owner = None


def _log_crash(name: str, error: BaseException) -> None:
    """Log the end of a background task by an error; a bug is logged with its traceback."""
    if isinstance(error, SiteatlasError):
        log.warning("background_task_failed", task=name, error_code=error.code, error=error.message)
    else:
        log.error("background_task_crashed", task=name, exc_info=error)
