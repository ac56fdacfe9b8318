"""Interactive commands inside a task: `alloc exec`.

A driver that can do more than run a command to its end (`Driver.exec_task`) also has `exec_stream`, which returns a
session with three streams. `Capabilities.exec` says whether it can run commands at all; a driver that has only
`exec_task` serves `alloc exec` without input and without a terminal.

States of a session: running -(the command ends)-> ended -close-> closed. `close` may be called at any time: when the
caller disconnects, the task ends or the agent stops. It kills the running command, so that no session outlives its
caller. The creator of a session must close it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from yurt.sdk.value import Value

STDOUT = "stdout"
STDERR = "stderr"


class TerminalSize(Value):
    """Columns and rows of a terminal."""

    width: int
    height: int


class ExecOutput(Value):
    """A piece of a command's output; a terminal has no stderr."""

    data: bytes
    stream: str = STDOUT


@runtime_checkable
class ExecSession(Protocol):
    """A command that runs inside a task; reading and writing may happen concurrently.

    Output that nobody takes holds the command up, as a full pipe does: a session keeps no more than it must.
    """

    def output(self) -> AsyncIterator[ExecOutput]:
        """The command's output as it arrives, until its end. Call it once."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its input; waits while the command reads none. Input after its end is dropped."""
        ...

    async def close_input(self) -> None:
        """Close its input; a terminal gets its end-of-file character."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of its terminal; no effect without a terminal."""
        ...

    async def wait(self) -> int:
        """The exit code, once it has ended; 128 and the number after a signal."""
        ...

    async def close(self) -> None:
        """Kill a running command and free the session; may be called again."""
        ...


@runtime_checkable
class StreamsExec(Protocol):
    """The method that a driver adds to `Driver` to support interactive commands."""

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start a command in the task's context, with a terminal if `tty`.

        Raises NotFound for an unknown task, DriverError with the reason when the command cannot be run.
        """
        ...
