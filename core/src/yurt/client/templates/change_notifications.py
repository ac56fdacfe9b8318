"""Notifies a running task of changed templates, once for each change: by a restart, signals or scripts.

A change raises `generation`. A start records the current generation, so that a task that started after a change is not
notified of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from yurt.client.templates.change_actions import RESTART_REASON, ChangeActions
from yurt.client.templates.task_control import TaskControl
from yurt.lifecycle import events
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS, Duration
from yurt.structs.task import ChangeScript

SCRIPT_LIMIT = Duration(5 * NANOSECONDS)


class ChangeNotifications:
    """The changes of one task's templates, and those that the task was notified of.

    `running` is set while the task runs: only then it is notified.
    """

    def __init__(self, control: TaskControl, *, running: asyncio.Event) -> None:
        self._control = control
        self._running = running
        self._generation = 0
        self._seen_generation = -1

    def changed(self) -> None:
        """Record templates that were written with a different text."""
        self._generation += 1

    def started(self) -> None:
        """Note that a run starts with the current files."""
        self._seen_generation = self._generation

    async def run_first(self, scripts: Iterable[ChangeScript]) -> None:
        """Run scripts once the task runs with its first files."""
        await self._running.wait()
        for script in scripts:
            await self._run_script(script)

    async def notify(self, actions: ChangeActions) -> None:
        """Notify the task of the newest change, unless it has started with it."""
        generation = self._generation
        await self._running.wait()
        if self._seen_generation >= generation:
            return
        self._seen_generation = generation
        if actions.restart:
            self._control.restart(RESTART_REASON)
            return
        for signal in actions.signals:
            await self._attempt(self._control.signal(signal, "Template re-rendered"), f"signal {signal}")
        for script in actions.scripts:
            await self._run_script(script)

    async def _attempt(self, work: Awaitable[None], what: str) -> None:
        try:
            await work
        except YurtError as error:
            self._control.note(events.template(f"Template re-rendered, but {what} failed: {error}"))

    async def _run_script(self, script: ChangeScript) -> None:
        shown = f"script {script.command} with arguments: [{' '.join(script.args)}]"
        timeout = script.timeout or SCRIPT_LIMIT
        try:
            result = await self._control.exec((script.command, *script.args), timeout=timeout)
            problem = f"exit code {result.exit_code}" if result.exit_code else ""
        except YurtError as error:
            problem = str(error)
        if not problem:
            self._control.note(events.template(f"Template successfully ran {shown}. Exit code: 0"))
            return
        failure = events.template(
            f"Template failed to run {shown} on change: {problem}", is_failure=script.fail_on_error
        )
        if script.fail_on_error:
            self._control.fail(failure)
        else:
            self._control.note(failure)
