"""Commands that run inside a task while somebody watches and types: `alloc exec`.

A driver that can do more than run a command to its end (`Driver.exec_task`) also has `exec_stream`, and offers by it
a session with three streams. `Capabilities.exec` says that it can run commands at all; a driver that has `exec_task`
alone serves `alloc exec` without input and without a terminal.

States of a session: running -(the command ends)-> ended -close-> closed. `close` may come at any time: when nobody
listens any more, when the task ends, when the agent stops. It kills what still runs, so that no session outlives the
one who asked for it. Whoever makes a session closes it.
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
    """A piece of what a command writes; a terminal knows no stderr."""

    data: bytes
    stream: str = STDOUT


@runtime_checkable
class ExecSession(Protocol):
    """A command that runs inside a task: one reads, one writes, at the same time.

    Output that nobody takes holds the command up, as a full pipe does: a session keeps no more than it must.
    """

    def output(self) -> AsyncIterator[ExecOutput]:
        """What the command writes, as it comes; ends when nothing more will. Call it once."""
        ...

    async def write(self, data: bytes) -> None:
        """Give it input; waits while it takes none. What comes after its end is dropped."""
        ...

    async def close_input(self) -> None:
        """Tell it that no more input will come; a terminal is given its end-of-file character."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Its terminal has another size now; without a terminal there is nothing to do."""
        ...

    async def wait(self) -> int:
        """Wait for its end: the exit code, after a signal 128 and its number; also after the end."""
        ...

    async def close(self) -> None:
        """Kill it when it still runs, and free all that the session holds; once more is no error."""
        ...


@runtime_checkable
class StreamsExec(Protocol):
    """What a driver has beside `Driver` when its tasks can be worked in."""

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start a command in the task's context, on a terminal of its own if `tty`.

        Raises NotFound for an unknown task, DriverError with the reason when the command cannot be run.
        """
        ...
