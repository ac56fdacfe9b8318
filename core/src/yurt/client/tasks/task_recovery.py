"""Recovers a task of an earlier agent: its driver finds the run, or the run counts as lost."""

from __future__ import annotations

import contextlib

from yurt.client.tasks.rebuild import find_run, rebuilt_record, runs_to_try
from yurt.client.tasks.task_runner import TaskRunner, reserved_cores
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, TaskHandle
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import replace
from yurt.storage.client_db import TaskRecord
from yurt.structs.status import TASK_RUNNING

RECORD_LOST = "the client's record of this task was lost"
RECOVER_WAITS_S = (1.0, 2.0, 4.0, 8.0)


async def restore(runner: TaskRunner, record: TaskRecord, env: Env) -> None:
    """Continue a task of an earlier agent: recover its run, or declare it lost."""
    if record.handle is not None:
        record = replace(
            record, handle=replace(record.handle, reserved_cores=reserved_cores(runner.alloc, runner.name))
        )
    runner.take_up(record)
    driver = runner.driver
    if driver is not None:
        runner.spawn("clearing", _clear_earlier(runner, driver, record))
    if runner.machine.phase == machine.DEAD or record.handle is None:
        if runner.machine.phase == machine.WAITING and record.state.state == TASK_RUNNING:
            runner.post(machine.Lost())
        return
    if driver is None:
        reason = f"driver {runner.calls.name!r}, which started the task, is no longer on this node"
        runner.note(events.driver_failure(reason))
        runner.post(machine.Lost())
    elif record.handle.is_intent:
        await _restore_intent(runner, record.handle, env)
    elif await _is_found(runner, record.handle, env):
        runner.recovered()
    else:
        runner.post(machine.Lost())


async def rebuild(runner: TaskRunner, env: Env) -> None:
    """Continue a task without a record that an earlier agent may have run."""
    reported, driver = runner.alloc.task_states.get(runner.name), runner.driver
    intents = tuple(runner.intent(run) for run in range(runs_to_try(reported)))
    run = await find_run(driver, intents, env)
    record = rebuilt_record(reported, run, runner.intent(run or 0))
    if record is not None:
        await restore(runner, record, env)
        runner.note(events.driver_message(RECORD_LOST))
    if run is None and driver is not None and not driver.capabilities.finds_by_id:
        reason = f"{RECORD_LOST}, and driver {driver.name!r} cannot tell whether the task runs"
        runner.post(machine.Kill(reason=events.driver_failure(reason), is_failure=True))


async def _restore_intent(runner: TaskRunner, handle: TaskHandle, env: Env) -> None:
    """Recover a run whose start was recorded but not confirmed: it may be running, or was never started."""
    for wait_s in RECOVER_WAITS_S:
        try:
            await runner.calls.recover(handle)
        except NotFound:
            # The driver is certain that the run never started: only now may it be started without running twice.
            runner.handle = None
            return
        except YurtError as error:
            runner.note(events.driver_message(f"looking for a started task failed: {error}"))
            await env.sleep(wait_s)
        else:
            runner.recovered()
            return
    runner.post(machine.Lost())


async def _is_found(runner: TaskRunner, handle: TaskHandle, env: Env) -> bool:
    """Whether the driver recovers the run; retried while the driver cannot answer."""
    for wait_s in RECOVER_WAITS_S:
        try:
            await runner.calls.recover(handle)
        except NotFound as error:
            runner.note(events.driver_message(str(error)))
            return False
        except YurtError as error:
            runner.note(events.driver_message(f"finding the task again failed: {error}"))
            await env.sleep(wait_s)
        else:
            return True
    return False


async def _clear_earlier(runner: TaskRunner, driver: Driver, record: TaskRecord) -> None:
    """Free the driver's resources of runs that had ended when the earlier agent stopped."""
    ended = [record.handle] if runner.machine.phase == machine.DEAD and record.handle is not None else []
    if record.run > 0 and driver.capabilities.finds_by_id:
        ended.append(runner.intent(record.run - 1))
    for handle in ended:
        with contextlib.suppress(NotFound):
            await runner.calls.recover(handle)
            await runner.calls.destroy(handle.task_id)
