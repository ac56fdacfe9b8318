"""Finds devices that a new allocation may not have by now; the plan applier refuses such plans."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.devices.bookings import parted
from yurt.scheduler.devices.offers import rack_of
from yurt.scheduler.devices.trials import declared_run, trial_of, trial_text
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node


def unusable_device(node: Node, keys: Iterable[str], group: TaskGroup | None) -> str:
    """The reason why one of the booked devices may not be given to a new allocation of a group; "" when all may.

    A device that the node does not report at all is no reason here.
    """
    rack = rack_of(node)
    if rack.is_usable:
        return ""
    for key in keys:
        number = rack.number_of.get(key)
        number = rack.number_of.get(parted(key)[0]) if number is None else number
        instance = None if number is None else rack.items[number].instance
        if instance is None:
            continue
        if not instance.healthy:
            return f"device {instance.id} is not healthy"
        trial = trial_of(instance)
        if trial is not None and group is not None and declared_run(group) > trial.run_max:
            return f"device {instance.id} is {trial_text(trial)}"
    return ""
