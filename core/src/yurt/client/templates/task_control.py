"""The operations on a task that its templates and identities need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from yurt.sdk.driver import ExecResult
from yurt.sdk.value import Duration
from yurt.structs.alloc import TaskEvent

Spawn = Callable[[Coroutine[Any, Any, None], Callable[[Exception], None]], asyncio.Task[None]]
"""Starts supervised work of the task."""


class TaskControl(Protocol):
    """The part of a task that its templates and identities control."""

    def note(self, event: TaskEvent) -> None:
        """Add an event to the task's history."""
        ...

    def restart(self, reason: str) -> None:
        """End the run and start another."""
        ...

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        ...

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command inside the running task."""
        ...

    def fail(self, event: TaskEvent) -> None:
        """End the task permanently, as failed."""
        ...
