"""Helpers for asyncio: fairness of the event loop, background tasks, loop-local values."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from uuid import UUID

from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger

ValueT = TypeVar("ValueT")


class LoopLocal(threading.local, Generic[ValueT]):
    """One object for the loop that runs in a thread; that of an ended loop is let go.

    A dictionary keyed by loop would keep both alive forever: the object holds futures, and those
    hold their loop.
    Loops that take turns in one thread, which is rare, get a new object at each turn.
    """

    def __init__(self, make: Callable[[], ValueT]) -> None:
        self._make = make
        self._made: tuple[asyncio.AbstractEventLoop, ValueT] | None = None

    def get(self) -> ValueT:
        """The object of the running loop, created on first access."""
        loop, made = asyncio.get_running_loop(), self._made
        if made is None or made[0] is not loop:
            made = self._made = loop, self._make()
        return made[1]


# After this many interactive jobs in a row, one of the others is admitted, so that none starves.
MAX_IN_A_ROW = 4

_is_interactive: ContextVar[bool] = ContextVar("is_interactive", default=False)


@contextmanager
def interactive_job(is_interactive: bool) -> Iterator[None]:
    """Mark the work inside, including tasks started there, as interactive or not."""
    token = _is_interactive.set(is_interactive)
    try:
        yield
    finally:
        _is_interactive.reset(token)


class PrioritySemaphore:
    """A semaphore with two queues of waiting tasks; acquire it with `async with`."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._interactive: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()
        self._in_a_row = 0

    def take(self) -> bool:
        """Take a permit if one is free; else wait for it with `async with`."""
        if self._free:
            self._free -= 1
            return True
        return False

    async def __aenter__(self) -> None:
        if self.take():
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._interactive if _is_interactive.get() else self._others).append(ready)
        try:
            await ready
        except asyncio.CancelledError:
            if not ready.cancelled():
                self.release()
            raise

    async def __aexit__(self, *_error: object) -> None:
        self.release()

    def release(self) -> None:
        """Pass the permit to the next waiter, skipping cancelled ones."""
        while waiting := self._next_waiters():
            ready = waiting.popleft()
            if not ready.done():
                self._in_a_row = self._in_a_row + 1 if waiting is self._interactive else 0
                ready.set_result(None)
                return
        self._free += 1

    def _next_waiters(self) -> deque[asyncio.Future[None]]:
        """The queue from which the semaphore admits the next waiting task; empty if none waits."""
        if self._others and self._in_a_row >= MAX_IN_A_ROW:
            return self._others
        return self._interactive or self._others


ROUND_SECONDS = 0.001
MAX_YIELD_SECONDS = 0.05
BACKGROUND_SHARE_SECONDS = 0.01
INTERACTIVE_SECONDS = 0.25

ItemT = TypeVar("ItemT")


class FairLoop:
    """Who may use the event loop next. One for each loop: `fair_loop()`."""

    def __init__(self) -> None:
        self._turn = PrioritySemaphore(1)
        self._no_interactive = asyncio.Event()
        self._no_interactive.set()
        self._interactive_count = 0
        self._started = 0.0
        self._worked = 0.0
        self._background_until = 0.0

    def time_slice(self) -> FairLoop:
        """Wait for the turn to do a step of heavy work; yield to the loop after enough of it."""
        return self

    async def __aenter__(self) -> None:
        if not self._turn.take():
            await self._turn.__aenter__()
        if self._interactive_count:
            try:
                await self.yield_to_interactive()
            except BaseException:
                self._turn.release()
                raise
        self._started = time.perf_counter()

    async def __aexit__(self, *_error: object) -> None:
        self._worked += time.perf_counter() - self._started
        try:
            if self._worked >= ROUND_SECONDS:
                self._worked = 0.0
                await asyncio.sleep(0)
        finally:
            self._turn.release()

    async def time_slices(self, work: Iterable[ItemT]) -> AsyncIterator[ItemT]:
        """The items of an iterable, each produced in a separate time slice."""
        making = iter(work)
        while True:
            async with self.time_slice():
                made = next(making, None)
            if made is None:
                return
            yield made

    async def yield_to_interactive(self) -> None:
        """Let requests go first; under constant load, other work still gets its share of time."""
        if not self._interactive_count or time.perf_counter() < self._background_until:
            return
        try:
            async with asyncio.timeout(MAX_YIELD_SECONDS):
                await self._no_interactive.wait()
        except TimeoutError:
            self._background_until = time.perf_counter() + BACKGROUND_SHARE_SECONDS

    @contextmanager
    def interactive(self) -> Iterator[None]:
        """Interactive work inside the block goes first, unless it takes long."""
        self._interactive_count += 1
        self._no_interactive.clear()
        leave = call_once(self._leave_interactive)
        late = asyncio.get_running_loop().call_later(INTERACTIVE_SECONDS, leave)
        try:
            yield
        finally:
            late.cancel()
            leave()

    def _leave_interactive(self) -> None:
        """Count down interactive work; after the last, other work may use the event loop again."""
        self._interactive_count -= 1
        if not self._interactive_count:
            self._no_interactive.set()


def call_once(callback: Callable[[], None]) -> Callable[[], None]:
    """Wrap a callback of the event loop so that only the first call runs it."""
    pending = [callback]

    def call() -> None:
        """Run the callback if it has not run yet."""
        if pending:
            pending.pop()()

    return call


_fair_loops = LoopLocal(FairLoop)


def fair_loop() -> FairLoop:
    """The `FairLoop` of the running event loop."""
    return _fair_loops.get()


class Quota:
    """The quota of one process. For a holder of None, only the total applies.

    Callers must not await between `has_room` and `taken_by`; otherwise the total could be exceeded.
    """

    def __init__(self, total: int, per_user: int) -> None:
        self.taken = 0
        self._total = total
        self._per_user = per_user
        self._taken_by: Counter[UUID] = Counter()

    def has_room(self, holder: UUID | None) -> bool:
        """Whether this holder may take one more."""
        is_below_limit = holder is None or self._taken_by[holder] < self._per_user
        return is_below_limit and self.taken < self._total

    @contextmanager
    def taken_by(self, holder: UUID | None) -> Iterator[None]:
        """Count one of this holder until the end of the block."""
        self._count(holder, 1)
        try:
            yield
        finally:
            self._count(holder, -1)

    def _count(self, holder: UUID | None, change: int) -> None:
        """Change the counts of the process and of this holder."""
        self.taken += change
        if holder is None:
            return
        self._taken_by[holder] += change
        if not self._taken_by[holder]:
            del self._taken_by[holder]


class WaitingQuota(Quota):
    """A quota whose holders wait for a place, in the order in which they came."""

    def __init__(self, total: int, per_user: int, waiting: Quota) -> None:
        super().__init__(total, per_user)
        self.waiting = waiting
        self._queue: dict[asyncio.Future[None], UUID] = {}

    @asynccontextmanager
    async def place(self, holder: UUID, seconds: float) -> AsyncIterator[None]:
        """Hold a place; TimeoutError if there is none in time, or if too many wait already."""
        if self.has_room(holder):
            self._count(holder, 1)
        else:
            await self._wait(holder, seconds)
        try:
            yield
        finally:
            self._pass_on(holder)

    async def _wait(self, holder: UUID, seconds: float) -> None:
        if not self.waiting.has_room(holder):
            raise TimeoutError
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[ready] = holder
        try:
            with self.waiting.taken_by(holder):
                async with asyncio.timeout(seconds):
                    await ready
        except BaseException:
            if self._queue.pop(ready, None) is None:
                self._pass_on(holder)
            raise

    def _pass_on(self, holder: UUID) -> None:
        """Give a place back, and each that is free to the first who may have it."""
        self._count(holder, -1)
        for ready, waiting in list(self._queue.items()):
            if self.has_room(waiting) and not ready.done():
                del self._queue[ready]
                self._count(waiting, 1)
                ready.set_result(None)


AnswerT = TypeVar("AnswerT")


class SharedCall(Generic[AnswerT]):
    """A call that runs at most once at a time; who asks while it runs waits for the same answer.

    After the deadline the call goes on, and the next one to ask joins it: a query to a database
    that hangs takes one connection, however often it is asked for, and cancelling a statement needs
    a response from the same server.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, AnswerT]]) -> None:
        self._make = call
        self._call: asyncio.Task[AnswerT] | None = None

    async def run(self, seconds: float) -> AnswerT:
        """The answer; TimeoutError if it takes longer than `seconds`."""
        call = self._call
        if call is None or call.done():
            call = self._call = asyncio.create_task(self._make())
            call.add_done_callback(_retrieve_error)
        done, _ = await asyncio.wait({call}, timeout=seconds)
        if not done:
            raise TimeoutError
        return call.result()

    async def cancel(self, seconds: float) -> None:
        """Cancel a call that is still running, and wait for its end for at most `seconds`."""
        if self._call is not None:
            self._call.cancel()
            await asyncio.wait({self._call}, timeout=seconds)


def _retrieve_error(call: asyncio.Task[AnswerT]) -> None:
    """Retrieve the error of a call that nobody waits for any more; else asyncio would log it."""
    if not call.cancelled():
        call.exception()


Result = TypeVar("Result")


class DaemonWorker:
    """Runs calls one after the other, in the order in which they were submitted."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_calls, name=name, daemon=True)

    def submit(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run `call` after all earlier ones; cancelling the future does not prevent it."""
        if not self._thread.is_alive():
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle_future(result: Result | None, error: BaseException | None) -> None:
            """Set the outcome of the call, on the event loop."""
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run_call() -> None:
            """Run the call in the daemon thread, then settle its future on the event loop."""
            result, error = None, None
            try:
                result = call()
            except BaseException as fault:  # noqa: BLE001 it is raised where the future is awaited
                error = fault
            # The loop may be closed when the command has ended without waiting for this call.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle_future, result, error)

        self._calls.put(run_call)
        return future

    def _run_calls(self) -> None:
        """The daemon thread: run the submitted calls, forever."""
        while True:
            self._calls.get()()


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
