"""Messages of `alloc exec` between a user's terminal and the node of the task.

The first frame that comes back is empty: the command runs. Its output follows, the ends of its streams, and last the
exit code. The end of the inputs, which is not the end of the command's input, means that nobody is there any more.
"""

from __future__ import annotations

from yurt.sdk.exec import TerminalSize
from yurt.sdk.value import Value


class ExecRequest(Value):
    """The command of `alloc exec`, and the task in which it runs."""

    alloc_id: str
    task: str
    command: tuple[str, ...]
    tty: bool = False
    is_action: bool = False
    """Whether the command is an action of the job: `${...}` in it is replaced as in the task's configuration."""
    is_node_exec_allowed: bool = False
    """Whether the caller may also run commands in tasks whose driver does not isolate them from the node."""


class ExecInput(Value):
    """One input message: bytes for the command, the end of its input, or the size of its terminal."""

    data: bytes = b""
    is_last: bool = False
    size: TerminalSize | None = None


class ExecFrame(Value):
    """One output message: bytes of a stream, the end of a stream, or the command's exit code.

    `is_node_exec` is set in the first frame of a command that nothing isolates from the node.
    """

    stream: str = ""
    data: bytes = b""
    is_last: bool = False
    exit_code: int | None = None
    is_node_exec: bool = False
