"""Rebuilds the lost record of a task from its driver's runs and its state at the servers.

`yurt.client.allocations.lost_records` explains why no task is started a second time.
"""

from __future__ import annotations

import logging
from typing import Final

from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, TaskHandle
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import replace
from yurt.storage.client_db import TaskRecord
from yurt.structs.alloc import TaskState
from yurt.structs.status import TASK_DEAD, TASK_RUNNING

log = logging.getLogger(__name__)

RUNS_AHEAD: Final = 8
"""The largest number of restarts that may be missing in the servers' state of the task."""
RETRY_WAITS_S: Final = (1.0, 2.0, 4.0, 8.0)


async def find_run(driver: Driver | None, intents: tuple[TaskHandle, ...], env: Env) -> int | None:
    """The number of the newest run that the driver finds, or None; `intents` are those of the runs, from run 0 on."""
    if driver is None or not driver.capabilities.finds_by_id:
        return None
    for run in reversed(range(len(intents))):
        if await _is_found(driver, intents[run], env):
            return run
    return None


def runs_to_try(reported: TaskState | None) -> int:
    """The largest number of runs that a task may have had, by the state that the servers have."""
    return 1 + RUNS_AHEAD + (reported.restarts if reported is not None else 0)


async def _is_found(driver: Driver, intent: TaskHandle, env: Env) -> bool:
    """Whether the driver finds the run; retried while the driver cannot answer."""
    for wait_s in RETRY_WAITS_S:
        try:
            await driver.recover_task(intent)
        except NotFound:
            return False
        except YurtError as error:
            log.warning("looking for a run of a task failed: id=%s: %s", intent.task_id, error)
            await env.sleep(wait_s)
        else:
            return True
    return False


def rebuilt_record(reported: TaskState | None, run: int | None, handle: TaskHandle) -> TaskRecord | None:
    """The rebuilt record of a task; None when it was never started. `handle` is the intent of the found run."""
    if reported is not None and reported.state == TASK_DEAD:
        return TaskRecord(state=reported, run=run or reported.restarts, handle=handle if run is not None else None)
    if run is not None:
        state = replace(reported or TaskState(), state=TASK_RUNNING)
        return TaskRecord(state=state, run=run, handle=handle)
    if reported is None or not reported.started_at:
        return None
    return TaskRecord(state=replace(reported, state=TASK_RUNNING), run=reported.restarts)
