"""Holds a task outside the hours of its `schedule` block and releases it inside, without asking a server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol

from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.rules.task_schedule import window_at
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.structs.task import Task

LONGEST_S: Final = 60.0
"""The longest interval between readings of the clock, so that a clock that is set takes effect."""
UNREADABLE: Final = "this node cannot follow the schedule of the task, which runs at any time"


class Scheduled(Protocol):
    """The part of a task's runner that its schedule needs."""

    @property
    def task(self) -> Task:
        """The task in the current job."""
        ...

    def post(self, event: machine.AnyTaskEvent) -> None:
        """Send an event to the task's machine."""
        ...


def post_present(runner: Scheduled, env: Env) -> None:
    """Post the schedule's current decision to a recovered task, before its next step is decided."""
    schedule = runner.task.schedule
    if schedule is None:
        runner.post(machine.ScheduleEdge(is_open=True))
        return
    with contextlib.suppress(Invalid):  # `follow_schedule` reports it
        window = window_at(schedule, env.now(), longest_s=LONGEST_S)
        runner.post(machine.ScheduleEdge(is_open=window.is_open))


async def follow_schedule(runner: Scheduled, env: Env, dead: asyncio.Event) -> None:
    """Post each start and end of the task's hours, until it is dead or an update removes the schedule."""
    while not dead.is_set():
        schedule = runner.task.schedule
        if schedule is None:
            runner.post(machine.ScheduleEdge(is_open=True))
            return
        try:
            window = window_at(schedule, env.now(), longest_s=LONGEST_S)
        except Invalid as error:
            runner.post(machine.Note(event=events.driver_message(f"{UNREADABLE}: {error}")))
            return
        runner.post(machine.ScheduleEdge(is_open=window.is_open))
        await wait_or_sleep(env, dead, window.again_s)
