"""Process 1 of a container: runs the command as a child, forwards signals, reaps orphans.

The embedded PostgreSQL outlives the shell that starts it, so its processes become children of
process 1. The command cannot reap them itself, because it would also collect the exit status of
programs that it is waiting for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

INIT = 1
SIGNAL_EXIT = 128
PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
# The kernel sends a Ctrl-C to every process of the terminal's group, the child included.
SENT_BY_KERNEL = 0x80


def run_below_init(command: Callable[[], None]) -> None:
    """Run `command`; in process 1, run it in a child and exit with its exit code."""
    if os.getpid() != INIT:
        command()
        return
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
        command()
        return
    os._exit(_watch(child))


def _watch(child: int) -> int:
    """As process 1, forward signals to the child and reap orphans; returns its exit code."""
    while True:
        came = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if came.si_signo != signal.SIGCHLD:
            if came.si_code != SENT_BY_KERNEL:
                os.kill(child, came.si_signo)
        elif (code := _reap(child)) is not None:
            return code


def _reap(child: int) -> int | None:
    """Reap all processes that ended; returns the exit code of `child` if it is one of them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = os.waitstatus_to_exitcode(ended[1])
                code = SIGNAL_EXIT - status if status < 0 else status
    return code
