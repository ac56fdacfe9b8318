"""Finds devices that a new allocation may not have by now.

The plan check refuses such placements, and `apply` those whose node has reported again since the check.
"""

from __future__ import annotations

from collections.abc import Iterable

from yurt.scheduler.devices.bookings import modes_of, parted
from yurt.scheduler.devices.offers import rack_of
from yurt.scheduler.devices.trials import declared_run, trial_of, trial_text
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node


def unusable_device(node: Node, keys: Iterable[str], group: TaskGroup | None) -> str:
    """The reason why one of the booked devices may not be given to a new allocation of a group; "" when all may.

    Neither a clock nor anything but the node's report and the group decides, so that every server answers the same.
    """
    rack = rack_of(node)
    for key in keys:
        number, share = rack.number_of.get(key), None
        if number is None:
            device, share = parted(key)
            number = rack.number_of.get(device)
            if number is None:
                return f"device {device} is no longer there"
        if rack.is_usable and share is None:
            continue
        instance = rack.items[number].instance
        if share is not None and share.mode not in modes_of(rack.items[number].kind, instance):
            return f"device {instance.id} is no longer shared in mode {share.mode}"
        if not instance.healthy:
            return f"device {instance.id} is not healthy"
        trial = trial_of(instance)
        if trial is not None and group is not None and declared_run(group) > trial.run_max:
            return f"device {instance.id} is {trial_text(trial)}"
    return ""
