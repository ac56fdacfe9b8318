"""The policy on idle devices: defaults, precedence of job, node pool and namespace, and the spellings of the API.

A job's own block holds, else that of its namespace, else that of its node pool. A namespace or a pool that enforces
its block replaces what jobs say; of two that do so, the one with the shorter window holds. The choice is made where a
version of a job is stored, so that the job shows it, and an action that a job's type cannot have becomes the nearest
one that it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, replace
from yurt.structs import status
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.idle import NOTIFY, REQUEUE, SHRINK, idle_policy

Data = dict[str, Any]
ParseDuration = Callable[[str], int]
"""Nanoseconds of a text such as "1h30m"; raises ValueError."""

MINUTE: Final = 60 * NANOSECONDS
_DEFAULTS: Final[Data] = {
    "Below": 2, "Gpus": "all", "Window": 60 * MINUTE, "First": 90 * MINUTE, "Action": NOTIFY, "Grace": 5 * MINUTE,
    "When": "contended",
}  # fmt: skip
_KEYS: Final = {
    "below": "Below", "min_gpu": "Below", "gpus": "Gpus", "window": "Window", "first": "First", "warn": "Warn",
    "action": "Action", "grace": "Grace", "when": "When", "interactive": "Interactive", "enforce": "Enforce",
}  # fmt: skip
_INTERACTIVE: Final = {"window": "Window", "keep": "Keep", "hours": "Hours"}
_HOURS: Final = {"start": "Start", "end": "End", "timezone": "Timezone"}
_DURATIONS: Final = ("Window", "First", "Grace")


def fill_idle(block: Data) -> None:
    """Set the defaults of a block in the API's spelling, in place; warnings come after 1/2 and 5/6 of the window."""
    for field, value in _DEFAULTS.items():
        if block.get(field) is None:
            block[field] = value
    window = block["Window"]
    if block.get("Warn") is None and isinstance(window, int):
        block["Warn"] = [part for part in (window // 2, window * 5 // 6) if part > 0]
    if isinstance(block.get("Interactive"), dict):
        _fill(block["Interactive"], {"Window": 0, "Keep": 3})


def _fill(block: Data, defaults: Data) -> None:
    for field, value in defaults.items():
        if block.get(field) is None:
            block[field] = value


def normalised_idle(document: Any, parse_duration: ParseDuration) -> Data:
    """The complete block of a namespace or a node pool in the API's spelling; raises Invalid.

    Keys may be those of files (`min_gpu`) or of the API (`Below`), durations numbers or texts.
    """
    block = _renamed(_one(document, "idle"), _KEYS, "idle")
    for key in _DURATIONS:
        if block.get(key) is not None:
            block[key] = _duration(f"idle {key.lower()}", block[key], parse_duration)
    if block.get("Warn") is not None:
        warn = block["Warn"]
        if not isinstance(warn, list | tuple):
            raise Invalid('idle warn: a list of durations is needed, such as ["30m", "50m"]')
        block["Warn"] = [_duration("idle warn", each, parse_duration) for each in warn]
    if block.get("Interactive") is not None:
        inner = _renamed(_one(block["Interactive"], "idle interactive"), _INTERACTIVE, "idle interactive")
        if inner.get("Window") is not None:
            inner["Window"] = _duration("idle interactive window", inner["Window"], parse_duration)
        if inner.get("Hours") is not None:
            inner["Hours"] = _renamed(_one(inner["Hours"], "idle interactive hours"), _HOURS, "idle interactive hours")
        block["Interactive"] = inner
    fill_idle(block)
    return block


def _one(value: Any, name: str) -> Mapping[str, Any]:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        raise Invalid(f"{name}: one block is needed")
    return value


def _renamed(block: Mapping[str, Any], keys: Mapping[str, str], name: str) -> Data:
    folded = {key.replace("_", ""): field for key, field in keys.items()}
    found: Data = {}
    for key, value in block.items():
        field = folded.get(str(key).replace("_", "").lower())
        if field is None and str(key) == "Source":
            continue  # of a block copied from a job; those of namespaces and pools have none
        if field is None:
            near = get_close_matches(str(key)[:64], list(keys), n=1)
            hint = f' (did you mean "{near[0]}"?)' if near else f"; known are {', '.join(keys)}"
            raise Invalid(f'{name}: unknown key "{str(key)[:64]}"{hint}')
        found[field] = value
    return found


def _duration(name: str, value: Any, parse_duration: ParseDuration) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None


def with_idle_policy(job: Job, namespace: Namespace | None, pool: NodePool | None) -> Job:
    """The job with the effective policies of its groups with devices; the same object if nothing changes."""
    spaces = {} if namespace is None or namespace.idle is None else {f'namespace "{namespace.name}"': namespace.idle}
    if pool is not None and pool.idle is not None:
        spaces[f'node pool "{pool.name}"'] = pool.idle
    if not spaces and not any(idle_policy(group) for group in job.task_groups):
        return job
    groups = tuple(_with_policy(job, group, spaces) for group in job.task_groups)
    return job if groups == job.task_groups else replace(job, task_groups=groups)


def _with_policy(job: Job, group: TaskGroup, spaces: Mapping[str, IdlePolicy]) -> TaskGroup:
    if sum(not policy.source for policy in idle_blocks(group)) > 1:
        return group  # validation rejects it; a single block here would hide the others
    existing = idle_policy(group)
    chosen = _chosen(existing if existing is not None and not existing.source else None, spaces)
    if chosen is not None:
        chosen = possible(job, group, chosen) if chosen.source else chosen
    tasks, is_set = [], False
    for task in group.tasks:
        devices = []
        for device in task.resources.devices:
            policy = None if is_set else chosen
            devices.append(device if device.idle == policy else replace(device, idle=policy))
            is_set = True
        if tuple(devices) != task.resources.devices:
            task = replace(task, resources=replace(task.resources, devices=tuple(devices)))  # noqa: PLW2901
        tasks.append(task)
    if not is_set:
        return group
    return replace(group, tasks=tuple(tasks))


def _chosen(own: IdlePolicy | None, spaces: Mapping[str, IdlePolicy]) -> IdlePolicy | None:
    named = [replace(policy, source=name, enforce=False) for name, policy in spaces.items()]
    enforced = [each for each, policy in zip(named, spaces.values(), strict=True) if policy.enforce]
    if enforced:
        return min(enforced, key=lambda each: each.window)
    return own or (named[0] if named else None)


def possible(job: Job, group: TaskGroup, policy: IdlePolicy) -> IdlePolicy:
    """The policy with its action replaced by the nearest one that the group supports."""
    gang, action = group.gang, policy.action
    if action == SHRINK and (gang is None or not gang.elastic):
        action = REQUEUE
    if action == REQUEUE and job.type != status.JOB_BATCH:
        action = NOTIFY
    if job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
        action = NOTIFY
    return policy if action == policy.action else replace(policy, action=action)


def idle_blocks(group: TaskGroup) -> Iterator[IdlePolicy]:
    """All `idle` blocks of a group's devices."""
    devices = (device for task in group.tasks for device in task.resources.devices)
    requests = (each for device in devices for each in (device, *device.first_available))
    return (each.idle for each in requests if each.idle is not None)
