"""Log lines for the start, the end and the failure of an allocation."""

from __future__ import annotations

from yurt.structs.alloc import TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING

_FOLLOWS_FROM_OTHERS = frozenset({"Not Restarting", "Killing", "Killed", "Sibling Task Failed"})
"""Events that follow the cause of a failure."""


def lifecycle_line(name: str, before: str | None, update: AllocUpdate) -> str:
    """The line for a report after one with status `before`, None for the first; "" when it is unchanged."""
    status = update.client_status
    if status == before:
        return ""
    who = f"alloc={update.id[:8]} name={name}"
    if status == CLIENT_RUNNING:
        return f"allocation {'started' if before is not None else 'taken up'}: {who}"
    if status == CLIENT_COMPLETE:
        return f"allocation ended: {who}"
    if status != CLIENT_FAILED:
        return ""
    reasons = [f"task={task}: {reason_of(state)}" for task, state in sorted(update.task_states.items()) if state.failed]
    return f"allocation failed: {who} {'; '.join(reasons) or update.client_description}"


def reason_of(state: TaskState) -> str:
    """The cause of a task's failure, from its newest event that explains it."""
    events = [event for event in reversed(state.events) if event.type not in _FOLLOWS_FROM_OTHERS]
    return next((event.display_message for event in (*events, *reversed(state.events)) if event.display_message), "")
