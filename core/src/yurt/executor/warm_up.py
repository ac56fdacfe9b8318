"""Runs the code of shims once in the zygote before the first fork, so that shims share the memory it touches.

What the interpreter keeps about code that has run (caches, specialised instructions) is then written already, and
shared by all shims instead of being written by each.
"""

from __future__ import annotations

import marshal
import os

from yurt.executor.shim import Shim
from yurt.executor.system import PR_SET_CHILD_SUBREAPER, READ_SIZE, quietly

# The plain module: `signal` wraps every call in enums, whose pages each shim would copy.
import _signal as signal  # type: ignore[import-not-found]  # isort: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

ROUNDS = 12
"""More than the interpreter waits for before it specialises a function."""


def rehearse(fork_shims: Callable[[Callable[[int], NoReturn], int], bytes], folder: bytes) -> None:
    """Fork children that end at once, and start and end tasks, in an existing folder."""
    fork_shims(leave, ROUNDS)
    # The word of a child's end would be taken for one to the shim that is played next. Ignored children leave no other.
    quietly(os.waitpid, -1, 0)
    base = folder + b"/rehearsal-%d" % os.getpid()
    body = marshal.dumps(fields_of(base))
    null = os.open(b"/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for _ in range(ROUNDS):
        rehearse_task(base, body, null)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(null)
    quietly(os.unlink, base + b".0")


def leave(_ack_fd: int) -> NoReturn:
    """The run of a rehearsal's child."""
    os._exit(0)


def rehearse_task(base: bytes, body: bytes, null: int) -> None:
    """The run of a shim whose task cannot be executed; continues despite the failure."""
    request_read, request_write = os.pipe()
    ack_read, ack_write = os.pipe()
    os.close(os.open(base + b".asked", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.write(request_write, len(body).to_bytes(4, "big") + body)
    shim = Shim(request_fd=request_read, reply_fd=null, lifeline_fd=-1)
    shim.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    shim.watch_signals()
    shim.start(shim.take_request(ack_write))
    shim.report_started(b"0 0 0 0 0 0\n")
    for log in shim.logs.values():
        log.write(b"")
    shim.run()
    wake_write = signal.set_wakeup_fd(-1)
    for fd in (request_write, ack_read, shim.wake_fd, wake_write):
        os.close(fd)


def fields_of(base: bytes) -> tuple[Any, ...]:
    """A request, as from `spec.encode_start`, for a task that cannot be executed."""
    none = b"/proc/self/none"
    task: dict[str, Any] = {
        "id": 0,
        "asked_file": base + b".asked",
        "start_file": base + b".start",
        "shim_join": [none],
        "cgroups": [(none, [(none, b"0")])],
        "argv": [b"/"],
        "candidates": [b"/"],
        "env": {},
        "cwd": b"/",
        "join": [none],
        "must_join": [],
        "oom_score_adj": None,
        "netns": b"",
        "uid": None,
    }
    end: tuple[Any, ...] = (none, b"", [none], [])
    return (
        0,
        base,
        base,
        1,
        READ_SIZE,
        base + b".asked",
        base + b".start",
        b"",
        marshal.dumps(task),
        marshal.dumps(end),
        b"",
    )
