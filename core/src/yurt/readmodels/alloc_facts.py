"""Facts of one allocation: its derived status, and its other fields on demand."""

from __future__ import annotations

from typing import Final

from yurt.scheduler.devices.bookings import parted
from yurt.state.usage import usage_of
from yurt.structs import status
from yurt.structs.alloc import Allocation, TaskEvent, TaskState
from yurt.structs.predicates import is_client_terminal, is_server_terminal

UNHEALTHY: Final = "unhealthy"
STARTING: Final = "starting"
RESTARTING: Final = "restarting"
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"

STATUSES: Final = (
    status.CLIENT_FAILED, status.CLIENT_LOST, RESTARTING, UNHEALTHY, status.CLIENT_UNKNOWN, STARTING,
    status.CLIENT_RUNNING, STOPPING, status.CLIENT_COMPLETE, STOPPED,
)  # fmt: skip
"""All words, most urgent first."""


def alloc_status(alloc: Allocation) -> str:
    """The derived status of an allocation, one word."""
    client = alloc.client_status
    if client == status.CLIENT_COMPLETE:
        return STOPPED if is_server_terminal(alloc) else client
    if is_client_terminal(alloc) or client == status.CLIENT_UNKNOWN:
        return client
    if is_server_terminal(alloc):
        return STOPPING
    if is_restarting(alloc):
        return RESTARTING
    if client == status.CLIENT_PENDING:
        return STARTING
    return UNHEALTHY if healthy(alloc) is False else client


def is_restarting(alloc: Allocation) -> bool:
    """A task has failed, or ended, and waits to be started again."""
    return any(state.state == status.TASK_PENDING and state.restarts for state in alloc.task_states.values())


def healthy(alloc: Allocation) -> bool | None:
    """The deployment's verdict on the allocation; None when undecided."""
    found = alloc.deployment_status
    return None if found is None else found.healthy


def deciding_task(alloc: Allocation) -> str:
    """The task that failed; "" for none."""
    return next((name for name, state in sorted(alloc.task_states.items()) if state.failed), "")


def last_event(alloc: Allocation) -> TaskEvent | None:
    """The newest event of the task that failed, else of any."""
    failed = deciding_task(alloc)
    states: tuple[TaskState, ...] = (alloc.task_states[failed],) if failed else tuple(alloc.task_states.values())
    newest = (state.events[-1] for state in states if state.events)
    return max(newest, key=lambda event: event.time, default=None)


def reason(alloc: Allocation) -> str:
    """The explanation of an allocation's status, for people; "" for one that runs or is complete."""
    found = alloc_status(alloc)
    if found in (status.CLIENT_RUNNING, status.CLIENT_COMPLETE):
        return ""
    if found in (STOPPING, STOPPED) and alloc.desired_description:
        return alloc.desired_description
    event = telling_event(alloc)
    text = "" if event is None else event.display_message or event.message or event.type
    return text or alloc.client_description


def telling_event(alloc: Allocation) -> TaskEvent | None:
    """The newest event that explains a task's failure, or the newest of all."""
    failed = deciding_task(alloc)
    return (failure_event(alloc.task_states[failed]) if failed else None) or last_event(alloc)


def failure_event(state: TaskState) -> TaskEvent | None:
    """The newest event that explains the failure of a task: its cause, else the event that marks the task as failed."""
    newest_first = state.events[::-1]
    cause = next((event for event in newest_first if _is_cause(event)), None)
    return cause or next((event for event in newest_first if event.fails_task), None)


def _is_cause(event: TaskEvent) -> bool:
    return bool(
        event.driver_error or event.setup_error or event.download_error or event.validation_error
        or event.exit_code or event.signal
    )  # fmt: skip


def restarts(alloc: Allocation) -> int:
    """The number of restarts of all tasks."""
    return sum(state.restarts for state in alloc.task_states.values())


def started_at(alloc: Allocation) -> int:
    """The first start of a task in Unix nanoseconds; 0 for none."""
    return min((state.started_at for state in alloc.task_states.values() if state.started_at), default=0)


def finished_at(alloc: Allocation) -> int:
    """The end of the last task in Unix nanoseconds; 0 while one runs."""
    states = alloc.task_states.values()
    is_over = bool(states) and all(state.state == status.TASK_DEAD for state in states)
    return max((state.finished_at for state in states), default=0) if is_over else 0


def tasks_running(alloc: Allocation) -> int:
    """The number of running tasks."""
    return sum(state.state == status.TASK_RUNNING for state in alloc.task_states.values())


def booked_mhz(alloc: Allocation) -> int:
    """The booked CPU in MHz."""
    return usage_of(alloc).cpu


def booked_memory(alloc: Allocation) -> int:
    """The booked memory in MiB."""
    return usage_of(alloc).memory


def booked_cards(alloc: Allocation) -> int:
    """The number of booked devices, whole or in part."""
    return len({parted(key)[0] for key in usage_of(alloc).devices})


def booked_vram(alloc: Allocation) -> int:
    """The device memory of booked shares in MiB; without whole devices, whose size only the node has."""
    shares = (parted(key)[1] for key in usage_of(alloc).devices)
    return sum(share.memory_mb for share in shares if share is not None)


def is_replaced(alloc: Allocation) -> bool:
    """Whether another allocation replaced it."""
    return bool(alloc.next_allocation)


def booked_memory_max(alloc: Allocation) -> int:
    """The memory limit in MiB; 0 when equal to the booked memory."""
    return usage_of(alloc).memory_max


def booked_cores(alloc: Allocation) -> int:
    """The number of exclusively booked cores."""
    return len(usage_of(alloc).cores)
