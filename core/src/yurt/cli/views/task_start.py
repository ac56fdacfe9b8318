"""The progress of new allocations until their tasks run: events, restarts, failures with the last log lines.

The events of a task come with each answer, the last ten of them. Each is shown once, by its time. A task is hopeless
when its allocation has failed or it has failed FAILURES_MAX times since it was watched; a group is stuck when all of
its allocations are. A monitor of a stuck group has nothing to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import clock, plural
from yurt.cli.views.task_failures import TaskFailure, failure_events, failures_of, log_tail, reason_of

FAILURES_MAX = 3
"""Failures of one task after which waiting for it stops."""
ALLOCS_SHOWN = 10
"""Allocations shown with every event; for further ones only failures are shown."""
FAILURES_SHOWN = 5
"""Failures shown with the lines of their logs."""
SETTLE_S = 1.0
"""How long tasks without a health check must run before they count as started."""
_SILENT = frozenset({"Received", "Started", "Terminated", "Not Restarting", "Killed", "Sibling Task Failed"})
"""Events already covered by the allocation's status or a failure."""
_ENDED = frozenset({"complete", "failed", "lost"})


class StartWatch:
    """Prints the events of starting tasks, and decides whether further waiting is useless."""

    def __init__(self, call: Invocation, say: Callable[[str], None]) -> None:
        self.call = call
        self.say = say
        self._newest_shown: dict[tuple[str, str], int] = {}
        self._failures: dict[tuple[str, str], TaskFailure] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._shown = 0
        self._settling: dict[str, float] = {}

    def skip(self, allocs: Iterable[Json]) -> None:
        """Skip the past events of allocations that existed before."""
        for alloc in allocs:
            for task, state in (alloc.get("TaskStates") or {}).items():
                self._newest_shown[alloc["ID"], task] = _newest(state)

    def take(self, allocs: list[Json]) -> None:
        """Print new events."""
        shows_all = len(allocs) <= ALLOCS_SHOWN
        for alloc in sorted(allocs, key=lambda each: each["Name"]):
            for task, state in sorted((alloc.get("TaskStates") or {}).items()):
                self._take_task(alloc, task, state, shows_all=shows_all)

    def _take_task(self, alloc: Json, task: str, state: Json, *, shows_all: bool) -> None:
        key = (alloc["ID"], task)
        newest = self._newest_shown.get(key, 0)
        who = f'Task "{task}" of allocation "{self.call.short(alloc["ID"])}"'
        failures = {failure.at_ns: failure for failure in failures_of(alloc) if failure.task == task}
        failing = failure_events(state)
        for event in state.get("Events") or ():
            at_ns = event.get("Time") or 0
            if at_ns <= newest:
                continue
            if event in failing and at_ns in failures:
                self._fail(key, failures[at_ns], who)
            elif shows_all and event["Type"] not in _SILENT and not _is_directory(event):
                self.say(f"{who}: {_shown(event)}")
        self._newest_shown[key] = max(newest, _newest(state))

    def _fail(self, key: tuple[str, str], failure: TaskFailure, who: str) -> None:
        self._failures[key] = failure
        self._counts[key] = self._counts.get(key, 0) + 1
        self._shown += 1
        if self._shown > FAILURES_SHOWN:
            return
        self.say(f"{who} failed: {failure.reason}")
        for line in log_tail(self.call, failure):
            self.say(f"    {line}")

    def stuck_groups(self, allocs: list[Json]) -> list[str]:
        """The groups of which no allocation will start."""
        groups: dict[str, list[Json]] = {}
        for alloc in allocs:
            if alloc.get("DesiredStatus") == "run" and alloc["ClientStatus"] != "complete":
                groups.setdefault(alloc["TaskGroup"], []).append(alloc)
        return sorted(name for name, members in groups.items() if all(map(self._is_hopeless, members)))

    def _is_hopeless(self, alloc: Json) -> bool:
        if alloc["ClientStatus"] in ("failed", "lost"):
            return True
        tasks = alloc.get("TaskStates") or {}
        return any(self._counts.get((alloc["ID"], task), 0) >= FAILURES_MAX for task in tasks)

    def reasons(self, groups: Iterable[str]) -> list[str]:
        """The newest failure of each of the groups, one line each."""
        newest: dict[str, TaskFailure] = {}
        for failure in sorted(self._failures.values(), key=lambda each: each.at_ns):
            newest[failure.group] = failure
        lines = []
        for group in groups:
            last = newest.get(group)
            cause = f'task "{last.task}": {last.reason}' if last else "the allocation failed"
            lines.append(f'Group "{group}": {cause}')
        return lines

    def have_run(self, groups: Iterable[str]) -> bool:
        """Whether the failures of the groups are ends of tasks that had started."""
        requested = set(groups)
        return all(failure.has_run for failure in self._failures.values() if failure.group in requested)

    def are_settled(self, allocs: Iterable[Json]) -> bool:
        """Whether each has ended or has run for SETTLE_S."""
        settled = [self._is_settled(each) for each in allocs]
        return all(settled)

    def _is_settled(self, alloc: Json) -> bool:
        if alloc["ClientStatus"] in _ENDED or alloc.get("DesiredStatus") != "run":
            return True
        if alloc["ClientStatus"] != "running" or self._is_between_runs(alloc):
            self._settling.pop(alloc["ID"], None)
            return False
        return time.monotonic() - self._settling.setdefault(alloc["ID"], time.monotonic()) >= SETTLE_S

    def _is_between_runs(self, alloc: Json) -> bool:
        """Whether a task waits for its restart."""
        return any(
            (state.get("Events") or [{}])[-1].get("Type") == "Restarting"
            for state in (alloc.get("TaskStates") or {}).values()
        )


def _newest(state: Json) -> int:
    return max((event.get("Time") or 0 for event in state.get("Events") or ()), default=0)


def _is_directory(event: Json) -> bool:
    return event["Type"] == "Task Setup" and event.get("DisplayMessage") == "Building Task Directory"


def _shown(event: Json) -> str:
    """The text of the driver or of a setup step; other events with their type."""
    if event["Type"] in ("Driver", "Task Setup"):
        return str(event.get("DisplayMessage") or event["Type"])
    return reason_of(event)


def outcome_lines(call: Invocation, allocs: list[Json]) -> list[str]:
    """How many allocations run, are complete or have failed."""
    counts = {status: sum(each["ClientStatus"] == status for each in allocs) for status in _STATUSES}
    parts = [f"{plural(count, 'allocation')} {word}" for status, word in _STATUSES.items() if (count := counts[status])]
    return [f"==> {clock()}: {', '.join(parts)}"] if parts else []


_STATUSES = {"running": "running", "complete": "complete", "failed": "failed", "lost": "lost", "pending": "pending"}
