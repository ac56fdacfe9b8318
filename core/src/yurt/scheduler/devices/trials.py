"""Devices on trial: which groups get one, and the reason for the others.

A device that had a fault is on trial for a time (`DeviceTrial`). It is given only to groups that lose little if it
fails again: those that can restart, and those that declare a short run. Whether a group may have it depends on the
node's report and the job alone, never on a clock, so every server and every replay decides the same.

A group's requests carry the run that a trial must permit (`TrialRequest`) where the cluster has devices on trial, so
all that is cached by request distinguishes groups that may have such a device from those that may not. Runs are rounded
up to those that trials permit, so that thousands of groups with different runs still make few different requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from yurt.sdk.value import NANOSECONDS
from yurt.structs.job import TaskGroup
from yurt.structs.node import DeviceTrial, Node, NodeDevice
from yurt.structs.resources import RequestedDevice

UNBOUNDED: Final = 1 << 63
"""The run in nanoseconds of a group that declares none."""


class TrialRequest(RequestedDevice):
    """A request with the run in nanoseconds that a trial must permit (`declared_run`); never stored."""

    run: int = 0


def declared_run(group: TaskGroup) -> int:
    """What a failing device costs the group at most, as a run in nanoseconds: 0 if it can restart."""
    if group.requeue is not None or group.checkpoint is not None:
        return 0
    return group.max_run_duration or UNBOUNDED


def trial_requests(group: TaskGroup, runs: Sequence[int]) -> tuple[tuple[str, RequestedDevice], ...]:
    """The group's device requests (task, request), with its run if some trial does not permit it.

    `runs`: the runs that the trials of the cluster permit, in order.
    """
    own = declared_run(group)
    run = next((each for each in runs if each >= own), UNBOUNDED)
    is_bound = bool(runs) and run > runs[0]
    requests = ((task.name, device) for task in group.tasks for device in task.resources.devices)
    return tuple((name, _with_run(device, run) if is_bound else device) for name, device in requests)


def untried(request: RequestedDevice) -> RequestedDevice:
    """The request as its job makes it."""
    if not isinstance(request, TrialRequest):
        return request
    return RequestedDevice(**(_fields(request) | {"first_available": tuple(map(untried, request.first_available))}))


def permits(device: NodeDevice, request: RequestedDevice) -> bool:
    """Whether a device is not on trial, or its trial permits the request."""
    trial = trial_of(device)
    return trial is None or not isinstance(request, TrialRequest) or request.run <= trial.run_max


def trial_of(device: NodeDevice) -> DeviceTrial | None:
    """The trial of a device that may have work."""
    return None if device.health is None or not device.healthy else device.health.trial


def has_trial(node: Node) -> bool:
    """Whether any device of a node is on trial."""
    return any(trial_of(each) is not None for kind in node.node_resources.devices for each in kind.instances)


def trial_text(trial: DeviceTrial) -> str:
    """`on trial until 2030-01-01T00:00:00Z: only groups with max_run_duration up to 1h, requeue or checkpoint`."""
    until = datetime.fromtimestamp(trial.until // NANOSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    short = f"max_run_duration up to {_duration(trial.run_max)}, " if trial.run_max else ""
    return f"on trial until {until}: only groups with {short}requeue or checkpoint"


def _with_run(request: RequestedDevice, run: int) -> TrialRequest:
    choices = tuple(_with_run(each, run) for each in request.first_available)
    return TrialRequest(**(_fields(request) | {"first_available": choices}), run=run)


def _fields(request: RequestedDevice) -> dict[str, Any]:
    return {name: getattr(request, name) for name in RequestedDevice.__struct_fields__}


def _duration(nanoseconds: int) -> str:
    """`1h`, `90m`, `45s`."""
    whole = nanoseconds // NANOSECONDS
    for unit, name in ((3600, "h"), (60, "m")):
        if whole and whole % unit == 0:
            return f"{whole // unit}{name}"
    return f"{nanoseconds / NANOSECONDS:g}s"
