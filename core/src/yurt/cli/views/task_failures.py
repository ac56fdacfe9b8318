"""The failures of an allocation's tasks: the event that explains each, and the last lines of the task's log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import ago, local_time

EXPLAINS = frozenset({
    "Driver Failure", "Setup Failure", "Failed Artifact Download", "Failed Validation", "Task hook failed",
    "Disk Exceeded", "Timeout", "Alloc Unhealthy", "Disconnected",
})  # fmt: skip
"""Events that tell why a task failed; Terminated and Template do in some cases."""
REQUESTED_ENDS = frozenset({"Restart Signaled", "Killing", "Sibling Task Failed", "Leader Task Dead"})
"""Events after which a task is ended on purpose: its exit code, often that of a signal, reports no fault then."""
HEALTH_CHECK = "healthcheck: "
"""How the reason of a restart begins that a failing health check has caused."""
LOG_LINES = 5
LINE_MAX = 300


class TaskFailure(NamedTuple):
    """One failure of a task."""

    alloc_id: str
    group: str
    task: str
    at_ns: int
    reason: str
    has_run: bool
    """It ended after it had started, so that it may have written a log."""


def failures_of(alloc: Json) -> list[TaskFailure]:
    """All failures of the tasks of an allocation that are still among its events, oldest first.

    Where tasks have failed for good, only theirs: the others ended or were restarted because of them.
    """
    tasks = alloc.get("TaskStates") or {}
    failed = {task: state for task, state in tasks.items() if state.get("Failed")}
    found = []
    for task, state in (failed or tasks).items():
        for event in failure_events(state):
            at_ns, has_run = event.get("Time") or 0, event["Type"] in ("Terminated", "Restart Signaled")
            found.append(TaskFailure(alloc["ID"], alloc["TaskGroup"], task, at_ns, reason_of(event), has_run))
    return sorted(found, key=lambda each: each.at_ns)


def failure_events(state: Json) -> list[Json]:
    """The events of a task that report a failure, oldest first."""
    found, is_requested = [], False
    for event in state.get("Events") or ():
        kind = event.get("Type")
        if kind == "Started":
            is_requested = False
        if _is_failure(event) and not (is_requested and kind == "Terminated" and not _is_out_of_memory(event)):
            found.append(event)
        is_requested = is_requested or kind in REQUESTED_ENDS
    return found


def _is_failure(event: Json) -> bool:
    kind = event.get("Type")
    if kind == "Terminated":
        details = event.get("Details") or {}
        return str(event.get("ExitCode") or details.get("exit_code") or "0") != "0" or _is_out_of_memory(event)
    if kind == "Restart Signaled":
        return _message_of(event).startswith(HEALTH_CHECK)
    return kind in EXPLAINS or (kind == "Template" and bool(event.get("FailsTask")))


def _is_out_of_memory(event: Json) -> bool:
    return "oom_killed" in (event.get("Details") or {})


def _message_of(event: Json) -> str:
    return str(event.get("DisplayMessage") or event.get("Message") or "")


def reason_of(event: Json) -> str:
    """`Driver Failure: docker: no such image`."""
    return f"{event['Type']}: {_message_of(event) or 'no reason was given'}"


def last_failures(allocs: Iterable[Json]) -> list[TaskFailure]:
    """The newest failure of each group."""
    newest: dict[str, TaskFailure] = {}
    for alloc in allocs:
        for failure in failures_of(alloc):
            before = newest.get(failure.group)
            if before is None or before.at_ns <= failure.at_ns:
                newest[failure.group] = failure
    return [newest[group] for group in sorted(newest)]


def show_last_failures(call: Invocation, allocs: Iterable[Json]) -> None:
    """A section with the newest failure of each group; nothing where no task failed."""
    found = last_failures(allocs)
    if not found:
        return
    time_text = local_time if call.is_verbose else ago
    call.screen.title("Last Failures")
    rows = [[each.group, each.task, call.short(each.alloc_id), time_text(each.at_ns), each.reason] for each in found]
    call.screen.table("Task Group|Task|Allocation|Time|Reason", rows)
    shown = next((each for each in found if each.has_run), None)
    if shown is not None:
        call.screen.line(f"\nWhat it wrote: yurt alloc logs -stderr {call.short(shown.alloc_id)} {shown.task}")


def log_tail(call: Invocation, failure: TaskFailure) -> list[str]:
    """The last lines of the task's standard error, else of standard output; empty when unavailable."""
    from yurt.cli.api.frames import LogSource, last_lines
    from yurt.sdk.errors import YurtError

    if not failure.has_run:
        return []
    for kind in ("stderr", "stdout"):
        data = b""
        with contextlib.suppress(YurtError):
            data, _ = last_lines(call.api, LogSource(failure.alloc_id, failure.task, kind), LOG_LINES)
        if data.strip():
            return [f"{kind}: {line}" for line in _printable(data)]
    return []


def _printable(data: bytes) -> list[str]:
    """Lines without the control characters that would move a terminal's cursor."""
    lines = data.decode(errors="replace").splitlines()
    clean = ["".join(char if char.isprintable() or char == "\t" else "?" for char in line) for line in lines]
    return [line if len(line) <= LINE_MAX else line[:LINE_MAX] + " ..." for line in clean]
