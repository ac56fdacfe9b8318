"""Lines of the log by which an operator sees what becomes of allocations on this node."""

from __future__ import annotations

from yurt.structs.alloc import TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING

_FOLLOWS_FROM_OTHERS = frozenset({"Not Restarting", "Killing", "Killed", "Sibling Task Failed"})
"""Events that come after what made a task fail."""


def life_line(name: str, before: str | None, update: AllocUpdate) -> str:
    """What to say of a report after one of the status `before` (None: it is the first); "" when nothing happened."""
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
    """What made a task fail, as its newest telling event says."""
    events = [event for event in reversed(state.events) if event.type not in _FOLLOWS_FROM_OTHERS]
    return next((event.display_message for event in (*events, *reversed(state.events)) if event.display_message), "")
