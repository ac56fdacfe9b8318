"""Task events: Nomad's type names and messages.

Events that thousands of tasks have are made once: their copies with a time share texts and details, which are read-only
and would take 1 KB for each task.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from yurt.sdk.driver import ExitResult
from yurt.sdk.value import Duration, UnixNano, duration_text, replace
from yurt.structs.alloc import TaskEvent
from yurt.structs.queueing.requeue import PREEMPTING

EVENTS_MAX = 10
STARTED = "Started"

REASON_WITHIN_POLICY = "Restart within policy"
ENDS_MAX: Final = 16
"""The number of different ends of tasks whose events share their texts: most of them are clean."""


def at(event: TaskEvent, now: UnixNano) -> TaskEvent:
    """The event with its time, and with the details that older API clients expect."""
    return replace(event, time=now)


def with_event(events: tuple[TaskEvent, ...], event: TaskEvent) -> tuple[TaskEvent, ...]:
    """The last ten events, the new one last."""
    return (*events, event)[-EVENTS_MAX:]


@cache
def received() -> TaskEvent:
    """The client has received the task."""
    return TaskEvent(type="Received", display_message="Task received by client")


def downloading_artifacts(progress: str = "") -> TaskEvent:
    """The task's artifacts are being downloaded; `progress` tells how much of the current one is complete."""
    text = progress or "Client is downloading artifacts"
    return TaskEvent(type="Downloading Artifacts", display_message=text)


def failed_artifact_download(reason: str) -> TaskEvent:
    """An artifact could not be downloaded."""
    return TaskEvent(
        type="Failed Artifact Download",
        display_message=reason,
        download_error=reason,
        details={"download_error": reason},
    )


@cache
def building_task_directory() -> TaskEvent:
    """The task's directory is being created."""
    return task_setup("Building Task Directory")


def task_setup(text: str) -> TaskEvent:
    """A step or a note of the task's preparation."""
    return TaskEvent(type="Task Setup", display_message=text, message=text, details={"message": text})


def setup_failure(reason: str) -> TaskEvent:
    """The preparation of the task failed."""
    return TaskEvent(
        type="Setup Failure",
        display_message=reason or "Task setup failed",
        setup_error=reason,
        fails_task=True,
        details={"setup_error": reason, "fails_task": "true"},
    )


def hook_message(text: str) -> TaskEvent:
    """A message from a package's hook."""
    return TaskEvent(type="Task hook message", display_message=text, message=text, details={"message": text})


def hook_failed(reason: str) -> TaskEvent:
    """A package's hook failed, at a step that the task survives or with the task."""
    return TaskEvent(type="Task hook failed", display_message=reason, message=reason, details={"message": reason})


def failed_validation(reason: str) -> TaskEvent:
    """The task's configuration is invalid."""
    return TaskEvent(
        type="Failed Validation",
        display_message=reason or "Validation of task failed",
        validation_error=reason,
        fails_task=True,
        details={"validation_error": reason, "fails_task": "true"},
    )


def template(text: str, *, is_failure: bool = False) -> TaskEvent:
    """A message about the task's templates."""
    return TaskEvent(type="Template", display_message=text, fails_task=is_failure, message=text)


def driver_failure(reason: str) -> TaskEvent:
    """The driver could not start the task."""
    return TaskEvent(
        type="Driver Failure",
        display_message=reason or "Failed to start task",
        driver_error=reason,
        details={"driver_error": reason},
    )


def driver_message(text: str) -> TaskEvent:
    """A message from the driver."""
    return TaskEvent(type="Driver", display_message=text, driver_message=text, details={"driver_message": text})


def device(text: str) -> TaskEvent:
    """A message about one of the task's devices."""
    return TaskEvent(type="Device", display_message=text, message=text, details={"message": text})


def idle(text: str) -> TaskEvent:
    """A notice about devices that the allocation does not use."""
    return TaskEvent(type="Idle", display_message=text, message=text, details={"message": text})


@cache
def started() -> TaskEvent:
    """The driver has started the task."""
    return TaskEvent(type=STARTED, display_message="Task started by client")


def terminated(result: ExitResult) -> TaskEvent:
    """The task has ended."""
    return _end_of(result.exit_code, result.signal, result.error, is_out_of_memory=result.oom_killed)


@lru_cache(ENDS_MAX)
def _end_of(exit_code: int, signal: int, error: str, *, is_out_of_memory: bool) -> TaskEvent:
    message = "OOM Killed" if is_out_of_memory else error
    parts = [f"Exit Code: {exit_code}"]
    details = {"exit_code": str(exit_code), "signal": str(signal)}
    if signal:
        parts.append(f"Signal: {signal}")
    if message:
        parts.append(f'Exit Message: "{message}"')
        details["exit_message"] = message
    if is_out_of_memory:
        details["oom_killed"] = "true"
    return TaskEvent(
        type="Terminated",
        display_message=", ".join(parts),
        message=message,
        exit_code=exit_code,
        signal=signal,
        details=details,
    )


def restarting(reason: str, delay: Duration) -> TaskEvent:
    """The task will start again after `delay`."""
    text = f"Task restarting in {duration_text(delay)}"
    if reason and reason != REASON_WITHIN_POLICY:
        text = f"{reason} - {text}"
    return TaskEvent(
        type="Restarting",
        display_message=text,
        restart_reason=reason,
        start_delay=delay,
        details={"restart_reason": reason, "start_delay": str(delay)},
    )


def not_restarting(reason: str) -> TaskEvent:
    """The task failed and will not start again."""
    return TaskEvent(
        type="Not Restarting",
        display_message=reason or "Task exceeded restart policy",
        restart_reason=reason,
        fails_task=True,
        details={"restart_reason": reason, "fails_task": "true"},
    )


def restart_signaled(reason: str) -> TaskEvent:
    """A restart was requested."""
    return TaskEvent(
        type="Restart Signaled",
        display_message=reason or "Task signaled to restart",
        restart_reason=reason,
        details={"restart_reason": reason},
    )


def pausing() -> TaskEvent:
    """Record that a user asked to pause the task."""
    return TaskEvent(type="Pausing", display_message="Task is being paused by user request")


def paused() -> TaskEvent:
    """The pause has ended the run."""
    return TaskEvent(type="Paused", display_message="Task is paused until it is resumed")


def outside_schedule() -> TaskEvent:
    """The scheduled hours of the task are over, or have not begun."""
    return TaskEvent(type="Pausing", display_message="Task is being paused by its schedule")


def inside_schedule() -> TaskEvent:
    """The scheduled hours of the task begin."""
    return TaskEvent(type="Resuming", display_message="Task is resumed by its schedule")


def resuming() -> TaskEvent:
    """Record that a user asked to resume the task."""
    return TaskEvent(type="Resuming", display_message="Task is resumed by user request")


def waiting_for_shutdown_delay(delay: Duration) -> TaskEvent:
    """The task is killed after its own or its group's `shutdown_delay`."""
    text = f"Waiting for shutdown_delay of {duration_text(delay)} before killing the task."
    return TaskEvent(type="Waiting for shutdown delay", display_message=text)


def preempting(reason: str) -> TaskEvent:
    """The task ends because its allocation is preempted."""
    text = reason or "The allocation is preempted"
    return TaskEvent(type=PREEMPTING, display_message=text, message=text, details={"message": text})


def checkpointing(signal: str, grace: Duration) -> TaskEvent:
    """The task is asked to save its work before it is stopped."""
    text = f"Sent {signal} to save its work. Waiting {duration_text(grace)} for its end or .done before stopping it"
    return TaskEvent(type="Checkpointing", display_message=text, task_signal=signal, details={"signal": signal})


def checkpointing_failed(reason: str) -> TaskEvent:
    """The task could not be asked to save its work."""
    text = f"The signal to save its work could not be sent: {reason}"
    return TaskEvent(type="Checkpointing", display_message=text, message=text, details={"message": text})


def checkpoint_overdue(interval: Duration) -> TaskEvent:
    """The task saves less often than its job declares."""
    text = f"No checkpoint for longer than twice the interval of {duration_text(interval)}"
    return TaskEvent(type="Checkpoint overdue", display_message=text, message=text, details={"message": text})


def killing(kill_timeout: Duration, reason: str = "") -> TaskEvent:
    """The task is being stopped."""
    text = reason or f"Sent interrupt. Waiting {duration_text(kill_timeout)} before force killing"
    return TaskEvent(
        type="Killing",
        display_message=text,
        kill_reason=reason,
        kill_timeout=kill_timeout,
        details={"kill_timeout": duration_text(kill_timeout)} | ({"kill_reason": reason} if reason else {}),
    )


def killed(error: str = "") -> TaskEvent:
    """The task has ended by request."""
    return TaskEvent(
        type="Killed",
        display_message=error or "Task successfully killed",
        kill_error=error,
        details={"kill_error": error} if error else {},
    )


def signaling(signal: str, reason: str = "") -> TaskEvent:
    """A signal is being sent to the task."""
    text = f"Task being sent signal {signal}" + (f": {reason}" if reason else "")
    return TaskEvent(
        type="Signaling",
        display_message=text,
        task_signal=signal,
        task_signal_reason=reason,
        details={"task_signal": signal, "task_signal_reason": reason},
    )


def sibling_failed(sibling: str) -> TaskEvent:
    """The task ends because another task of the group failed."""
    return TaskEvent(
        type="Sibling Task Failed",
        display_message=f'Task\'s sibling "{sibling}" failed',
        failed_sibling=sibling,
        details={"failed_sibling": sibling},
    )


def leader_dead() -> TaskEvent:
    """The task ends because the group's leader ended."""
    return TaskEvent(type="Leader Task Dead", display_message="Leader Task in Group dead")


def main_tasks_dead() -> TaskEvent:
    """The sidecar ends because all main tasks ended."""
    return TaskEvent(type="Main Tasks Dead", display_message="Main tasks in the group died")


def max_run_duration_exceeded(limit: Duration) -> TaskEvent:
    """The allocation ran longer than its group allows."""
    text = f"Timeout: allocation exceeded max_run_duration of {duration_text(limit)}"
    return TaskEvent(type="Timeout", display_message=text, message=text, details={"message": text})


DISK_EXCEEDED = "Disk Exceeded"


def disk_exceeded(text: str) -> TaskEvent:
    """The allocation exceeds its group's disk size."""
    return TaskEvent(type=DISK_EXCEEDED, display_message=text, message=text, details={"message": text})


MEMORY_PRESSURE = "Memory Pressure"


def memory_pressure(text: str) -> TaskEvent:
    """The task waits for memory, at its limit or on a node that is short of it."""
    return TaskEvent(type=MEMORY_PRESSURE, display_message=text, message=text, details={"message": text})


def alloc_unhealthy(reason: str) -> TaskEvent:
    """The allocation is marked unhealthy in its deployment."""
    return TaskEvent(type="Alloc Unhealthy", display_message=reason, message=reason, details={"message": reason})


def cut_off(after: Duration) -> TaskEvent:
    """The client had no contact with its servers for longer than the group permits.

    The servers may never have missed it. So the allocation counts as failed: one that had ended by itself would not
    be replaced.
    """
    text = f"No contact to the servers for {duration_text(after)} (stop_on_client_after)"
    return TaskEvent(type="Disconnected", display_message=text, message=text, details={"message": text})


def reconnected() -> TaskEvent:
    """The client has reconnected to the servers."""
    return TaskEvent(type="Reconnected", display_message="Client reconnected")
