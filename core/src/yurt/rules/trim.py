"""The inverse of canonicalization: a job without default values.

A server's copy of a job names every default; a person would have written a few lines. Each field is taken out in
turn, and stays out when canonicalization fills in the same value again. That asks the one place that knows the
defaults instead of keeping a second list of them. The pieces are tried small (the job without its groups, a group
without its tasks, one task) so that the effort grows with the size of the job and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from yurt.rules.canonical import canonicalize_job

Data = dict[str, Any]

TASKS_MAX = 200
"""The maximum number of tasks of a job that is trimmed; larger jobs only lose their nulls."""
_ALWAYS_SHOWN = frozenset({"ID", "Name", "Type", "Driver", "TaskGroups", "Tasks"})
"""Fields that are always shown, even with their default."""
_FREE = frozenset({"Config", "Env", "Meta", "CanaryMeta", "TaggedAddresses", "Policy", "Header", "Args"})
"""Maps whose keys users choose."""


def without_nulls(value: Any) -> Any:
    """A copy without null fields, which are equivalent to absent ones."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def trim_job(job: Mapping[str, Any]) -> Data:
    """The smallest job with the same canonical form; the argument is unchanged."""
    whole: Data = without_nulls(job)
    groups: list[Data] = whole.get("TaskGroups") or []
    if sum(len(group.get("Tasks") or ()) for group in groups) > TASKS_MAX:
        return whole
    top = {**whole, "TaskGroups": []}
    _shrink_all(top, lambda: top)
    trimmed = [_trimmed_group(top, group) for group in groups]
    result = {**top, "TaskGroups": trimmed}
    return result if _canonical(result) == _canonical(whole) else whole


def _trimmed_group(top: Data, group: Data) -> Data:
    tasks: list[Data] = group.get("Tasks") or []
    group = {**group, "Tasks": []}
    _shrink_all(group, lambda: {**top, "TaskGroups": [group]})
    for task in tasks:
        _shrink_task(top, group, task)
    return {**group, "Tasks": tasks}


def _shrink_task(top: Data, group: Data, task: Data) -> None:
    _shrink_all(task, lambda: {**top, "TaskGroups": [{**group, "Tasks": [task]}]})


def _shrink_all(node: Data, job: Callable[[], Data]) -> None:
    expected = _canonical(job())
    _shrink(node, lambda: _canonical(job()) == expected)


def _shrink(node: Data, is_same: Callable[[], bool]) -> None:
    for key in [key for key in node if key not in _ALWAYS_SHOWN]:
        value = node.pop(key)
        if is_same():
            continue
        node[key] = value
        if key in _FREE:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                _shrink(item, is_same)


def _canonical(job: Data) -> Any:
    return without_nulls(canonicalize_job(job))
