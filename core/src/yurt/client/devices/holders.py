"""Finds the tasks that hold devices, and notifies them of changes of device health."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from yurt.client.devices.claims import claim_of
from yurt.client.devices.health_keeper import HealthChange
from yurt.client.devices.process_owners import LiveTask
from yurt.client.devices.wire import GroupKey, group_name, key_of
from yurt.client.node.node_events import NodeEvents
from yurt.lifecycle import events
from yurt.lifecycle.task import RUNNING, STARTING, STOPPING, TaskMachine
from yurt.sdk.device import MIG, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.driver import TaskHandle
from yurt.structs.alloc import Allocation, TaskEvent
from yurt.structs.predicates import is_server_terminal


class HoldingTask(Protocol):
    """A task that may hold devices."""

    @property
    def name(self) -> str:
        """Its name in the job."""
        ...

    @property
    def alloc(self) -> Allocation:
        """Its allocation."""
        ...

    @property
    def machine(self) -> TaskMachine:
        """Its current state."""
        ...

    @property
    def handle(self) -> TaskHandle | None:
        """The handle of its run, once it has started."""
        ...

    def note(self, event: TaskEvent) -> None:
        """Add an event to its history."""
        ...

    async def end_run(self, why: TaskEvent) -> None:
        """End its run as failed."""
        ...


class DeviceHolders:
    """Finds the tasks that hold devices; `tasks` are all tasks that may still run."""

    def __init__(self, tasks: Callable[[], Iterable[HoldingTask]]) -> None:
        self._tasks = tasks

    def each(self) -> Iterator[tuple[HoldingTask, DeviceClaim]]:
        """Every task with devices that may still run, and its claim."""
        for task in self._tasks():
            claim = claim_of(task.alloc, task.name)
            if claim.devices:
                yield task, claim

    def using(self, claim: DeviceClaim) -> tuple[HoldingTask, str] | None:
        """Another task that is being stopped and still holds a device of the claim, with that device; None without one.

        A plan assigns the devices of the tasks it stops to those it places: during the stop both hold them.
        """
        for task, held in self.each():
            is_own = (task.alloc.id, task.name) == (claim.alloc_id, claim.task_name)
            is_ending = task.machine.is_killed or is_server_terminal(task.alloc)
            if is_own or not is_ending or task.machine.phase not in (STARTING, RUNNING, STOPPING):
                continue
            if device := _common(claim, held):
                return task, device
        return None

    def is_free(self, group: GroupKey, device: str) -> bool:
        """Whether no task that may still run holds the device or a share of it."""
        return not any(
            key_of(devices) == group and device in devices.ids for _, claim in self.each() for devices in claim.devices
        )

    def live(self) -> Iterator[LiveTask]:
        """The running tasks, with or without devices, among which the owner of a process is looked up."""
        for task in self._tasks():
            if task.handle is not None and task.machine.phase == RUNNING:
                yield LiveTask(
                    alloc_id=task.alloc.id, task_name=task.name, task_id=task.handle.task_id, pid=task.handle.pid
                )


class HealthNotices:
    """Emits events for changes of device health, on the node and on each holder, and for plugins without devices."""

    def __init__(self, holders: DeviceHolders, node_events: NodeEvents) -> None:
        self._holders = holders
        self._node_events = node_events

    def report(self, changes: Sequence[HealthChange]) -> None:
        """Emit node events for the changes, and a task event on each holder of a changed device.

        Devices of a group with the same change share one node event, because a node keeps its last ten events only.
        """
        alike: dict[tuple[GroupKey, str, str], list[HealthChange]] = {}
        for change in changes:
            alike.setdefault((change.group, change.state, change.reason), []).append(change)
        for same in alike.values():
            first, ids = same[0], ",".join(each.id for each in same)
            text = first.text if len(same) == 1 else first.text_of(len(same))
            self._node_events.emit("Device", text, device=ids, group=group_name(first.group))
        for task, claim in tuple(self._holders.each()):
            for change in changes:
                if any(key_of(devices) == change.group and change.id in devices.ids for devices in claim.devices):
                    task.note(events.device(change.text))

    def is_free(self, group: GroupKey, device: str) -> bool:
        """Whether no task that may still run holds the device or a share of it."""
        return self._holders.is_free(group, device)

    def report_plugin(self, name: str, reason: str) -> None:
        """Emit a node event about a plugin whose devices cannot be used."""
        self._node_events.emit("Device", f"Device plugin {name}: {reason}", plugin=name)


def _common(one: DeviceClaim, other: DeviceClaim) -> str:
    """A device in both claims that the two cannot have at once; "" without one."""
    for mine in one.devices:
        for theirs in other.devices:
            both = [each for each in mine.ids if each in theirs.ids]
            if both and key_of(mine) == key_of(theirs) and excludes(mine, theirs):
                return both[0]
    return ""


def excludes(mine: ClaimedDevices, theirs: ClaimedDevices) -> bool:
    """Whether a card must have lost one claim before it can serve the other.

    A card is whole, or shared in one mode. MIG instances of one profile at different slices never overlap; how many
    slices another profile takes is known to the plugin only.
    """
    if WHOLE in (mine.share, theirs.share) or mine.share != theirs.share:
        return True
    if mine.share != MIG:
        return False
    is_same = (mine.memory_mb, mine.compute) == (theirs.memory_mb, theirs.compute)
    places = set(zip(mine.ids, mine.numbers, strict=False)) & set(zip(theirs.ids, theirs.numbers, strict=False))
    return not is_same or bool(places)
