"""Devices of nodes: the marks of operators and of failed allocations, and moves away from failed devices.

A client owns the state of its devices (`NodeDevice.health`), the servers own marks (`Node.device_marks`). Whether
something may be placed on a device follows from both, and stands in `NodeDevice.healthy`, which all readers use.

Jobs in a row: an allocation that ended as failed after a task with the device had started adds its job to the device's
list; an allocation that completed empties the list. With `SUSPICIOUS_JOBS` different jobs the device is suspected, and
nothing is placed on it until its client has acknowledged that, which then tests it. Children of a job count as their
parent: bad input of one periodic or parameterized job says nothing of a card.

A client acknowledges a mark by its key, not its index: after a restore indexes are lower than those it has seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.device import device_of
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import Rejected, SetDeviceEligibility
from yurt.structs.job import TaskGroup
from yurt.structs.node import DeviceHealth, DeviceMark, Node, NodeDevice, NodeEvent, unhealthy_reason
from yurt.structs.predicates import is_client_terminal
from yurt.structs.resources import RequestedDevice
from yurt.structs.rules import RECLAIM_RULES

SUSPICIOUS_JOBS: Final = 3
REASON_MAX: Final = 512
HASH_DIGITS: Final = 12
EVENTS_MAX: Final = 10
MOVABLE: Final = (status.JOB_SERVICE, status.JOB_BATCH)
DISABLED: Final = "disabled by an operator"
NO_HEALTH: Final = "the agent of this node does not report the health of its devices; upgrade it"


def devices_of(node: Node) -> Iterator[tuple[str, NodeDevice]]:
    """Every device with its key `vendor/type/name/id`."""
    for group in node.node_resources.devices:
        for each in group.instances:
            yield "/".join((group.vendor, group.type, group.name, each.id)), each


def requests_of(node: Node) -> Mapping[str, DeviceMark]:
    """The marks that the node's client must act on."""
    return {key: mark for key, mark in node.device_marks.items() if mark.kind in ("suspected", "enabled")}


def pending_marks(marks: Mapping[str, DeviceMark], node: Node) -> Mapping[str, DeviceMark]:
    """The marks that remain after a node registers.

    A disabled device stays so, also while it is away. Other marks go once the client has acted on them, and with the
    device or an agent that keeps no health: nobody would act on them.
    """
    if not marks:
        return marks
    healths = {key: each.health for key, each in devices_of(node) if each.health is not None}
    return {
        key: mark
        for key, mark in marks.items()
        if mark.kind == "disabled" or (key in healths and not _is_settled(mark, healths[key]))
    }


def _is_settled(mark: DeviceMark, health: DeviceHealth) -> bool:
    return mark.kind in ("suspected", "enabled") and health.acknowledged_mark == mark.key


def with_marks(node: Node) -> Node:
    """The node with each device's `healthy` derived from its client's report and its mark."""
    if not node.node_resources.devices:
        return node
    groups = []
    for group in node.node_resources.devices:
        head = "/".join((group.vendor, group.type, group.name))
        instances = tuple(_judged(each, node.device_marks.get(f"{head}/{each.id}")) for each in group.instances)
        groups.append(group if instances == group.instances else replace(group, instances=instances))
    devices = tuple(groups)
    if devices == node.node_resources.devices:
        return node
    return replace(node, node_resources=replace(node.node_resources, devices=devices))


def _judged(device: NodeDevice, mark: DeviceMark | None) -> NodeDevice:
    is_disabled = mark is not None and mark.kind == "disabled"
    if device.health is None:
        # An agent without health states reports in the same fields: its verdict against the device stays.
        is_changed = mark is not None and is_disabled and device.healthy
        return replace(device, healthy=False, health_description=_disabled(mark)) if mark and is_changed else device
    reason = unhealthy_reason(device.health)
    if mark is not None and is_disabled:
        reason = _disabled(mark)
    elif mark is not None and mark.kind == "suspected":
        reason = mark.reason
    if (device.healthy, device.health_description) == (not reason, reason):
        return device
    return replace(device, healthy=not reason, health_description=reason)


def _disabled(mark: DeviceMark) -> str:
    return DISABLED + (f": {mark.reason}" if mark.reason else "")


# Operators.


def changed_by_operator(node: Node, command: SetDeviceEligibility, *, index: int, now: int) -> Node | Rejected:
    """The node after an operator disabled or enabled a device, or the reason why that is impossible."""
    devices = dict(devices_of(node))
    keys = [key for key, each in devices.items() if command.device in (key, each.id)]
    if not keys and command.device in node.device_marks:
        keys = [command.device]
    if len(keys) > 1:
        return invalid(f'"{command.device[:128]}" is the id of several devices: name one of {", ".join(keys)}')
    if not keys or not (keys[0] in devices or command.is_eligible):
        return not_found(f'node "{node.id}" has no device "{command.device[:128]}"')
    (key,) = keys
    mark = node.device_marks.get(key, DeviceMark())
    if (changed := _changed_meanwhile(key, mark, command)) is not None:
        return changed
    if key not in devices:
        return _unmarked(node, key, index=index, now=now)
    device = devices[key]
    if device.health is None:
        is_back = command.is_eligible and mark.kind == "disabled"
        return _unmarked(node, key, index=index, now=now) if is_back else invalid(NO_HEALTH)
    if not command.is_eligible and mark.kind == "disabled":
        return conflict(f"device {key} is disabled already" + (f": {mark.reason}" if mark.reason else ""))
    if command.is_eligible and mark.kind == "enabled":
        return conflict(f"device {key} is enabled already; its agent has not acknowledged it yet")
    if command.is_eligible and mark.kind == "" and device.health.state == "healthy":
        return conflict(f"device {key} is healthy and not disabled")
    kind: str = "enabled" if command.is_eligible else "disabled"
    new = DeviceMark(
        kind="enabled" if command.is_eligible else "disabled",
        reason=command.reason[:REASON_MAX],
        at=now,
        index=index,
        failed_jobs=mark.failed_jobs if not command.is_eligible else (),
    )
    text = f"Device {key} {kind} by an operator" + (f": {new.reason}" if new.reason else "")
    return _marked(node, {key: new}, (text,), index=index, now=now)


def _changed_meanwhile(key: str, mark: DeviceMark, command: SetDeviceEligibility) -> Rejected | None:
    """The refusal of a command whose operator has not seen the device's present mark."""
    if command.mark_index is None or command.rules_version < RECLAIM_RULES:
        return None
    if mark.index == command.mark_index:
        return None
    present = f"it is {mark.kind} now" if mark.kind else "its mark is gone"
    text = f"device {key} was changed since you looked at it (mark {command.mark_index}, now {mark.index}): {present}"
    return conflict(text + (f": {mark.reason}" if mark.reason else "") + "; look at the node and decide again")


def _unmarked(node: Node, key: str, *, index: int, now: int) -> Node:
    """The node without the mark of a device that reports no health: it is gone, or its agent is too old."""
    groups = []
    for group in node.node_resources.devices:
        head = "/".join((group.vendor, group.type, group.name))
        instances = tuple(
            replace(each, healthy=True, health_description="")
            if f"{head}/{each.id}" == key and each.health_description.startswith(DISABLED)
            else each
            for each in group.instances
        )
        groups.append(replace(group, instances=instances))
    resources = replace(node.node_resources, devices=tuple(groups))
    text = f"Device {key} enabled by an operator"
    return _marked(replace(node, node_resources=resources), {key: DeviceMark()}, (text,), index=index, now=now)


def _marked(node: Node, marks: Mapping[str, DeviceMark], texts: Iterable[str], *, index: int, now: int) -> Node:
    """The node with marks and events; a mark without content is removed."""
    nonempty = {key: mark for key, mark in {**node.device_marks, **marks}.items() if mark.kind or mark.failed_jobs}
    events = tuple(NodeEvent(message=text, subsystem="Device", timestamp=now, create_index=index) for text in texts)
    return with_marks(
        replace(node, device_marks=nonempty, events=(*node.events, *events)[-EVENTS_MAX:], modify_index=index)
    )


# Ended allocations.


def note_end(edit: Edit, before: Allocation, after: Allocation, *, now: int) -> None:
    """Count an ended allocation for or against the devices of its tasks."""
    if is_client_terminal(before) or after.client_status not in (status.CLIENT_FAILED, status.CLIENT_COMPLETE):
        return
    is_own_end = after.desired_status == status.DESIRED_RUN and not after.desired_transition.migrate
    keys = sorted(set(_devices_used(after))) if is_own_end else ()
    node: Node | None = edit.tx.get(Tables.nodes, after.node_id) if keys else None
    if node is None:
        return
    health = {key: each.health for key, each in devices_of(node) if each.health is not None}
    marks, texts = dict[str, DeviceMark](), list[str]()
    for key in (each for each in keys if each in health):
        existing = node.device_marks.get(key, DeviceMark())
        mark = _counted(existing, after, health[key], index=edit.index, now=now)
        if mark != existing:
            marks[key] = mark
        if mark.kind == "suspected" != existing.kind:
            texts.append(f"Device {key} is suspect: {mark.reason}")
    if marks:
        edit.tx.put(Tables.nodes, node.id, _marked(node, marks, texts, index=edit.index, now=now))


def _devices_used(alloc: Allocation) -> Iterator[str]:
    """The devices of tasks that started (and that failed, if the allocation did)."""
    for name, resources in alloc.allocated_resources.tasks.items():
        state = alloc.task_states.get(name)
        if not resources.devices or state is None or not state.started_at:
            continue
        if alloc.client_status == status.CLIENT_FAILED and not state.failed:
            continue
        for device in resources.devices:
            for each in device.device_ids:
                yield "/".join((device.vendor, device.type, device.name, device_of(each)))


def _counted(mark: DeviceMark, alloc: Allocation, health: DeviceHealth, *, index: int, now: int) -> DeviceMark:
    if alloc.client_status == status.CLIENT_COMPLETE:
        return replace(mark, failed_jobs=())
    parent = alloc.job.parent_id if alloc.job is not None else ""
    job = hashlib.sha256(f"{alloc.namespace}/{parent or alloc.job_id}".encode()).hexdigest()[:HASH_DIGITS]
    if job in mark.failed_jobs or mark.kind == "suspected":
        return mark
    jobs = (*mark.failed_jobs, job)
    if len(jobs) < SUSPICIOUS_JOBS or mark.kind or health.state not in ("healthy", "suspect"):
        return replace(mark, failed_jobs=jobs[-SUSPICIOUS_JOBS:])
    reason = f"the last {len(jobs)} jobs on it failed"
    return DeviceMark(kind="suspected", reason=reason, at=now, index=index, failed_jobs=jobs)


# Moves.


def failed_devices(node: Node) -> frozenset[str]:
    """The keys of a node's failed devices."""
    return frozenset(key for key, each in devices_of(node) if each.health is not None and each.health.state == "failed")


def move_from_failed_devices(edit: Edit, node: Node, *, now: int, is_paced: bool) -> bool:
    """Mark allocations on failed devices for migration if their jobs say so; True if any was newly marked.

    `is_paced`: without those whose groups have a pace (`moves_at_pace`), which the leader moves.
    """
    failed = failed_devices(node)
    if not failed:
        return False
    is_moving = False
    for alloc_id in sorted(edit.tx.keys_where(Tables.allocs, "node", node.id)):
        alloc = edit.alloc(alloc_id)
        if alloc is None or not leaves_devices(alloc, failed) or (is_paced and moves_at_pace(alloc)):
            continue
        transition = replace(alloc.desired_transition, migrate=True)
        moved = replace(
            alloc, desired_transition=transition, modify_index=edit.index, modify_time=now or alloc.modify_time
        )
        edit.put_alloc(alloc, moved)
        is_moving = True
    return is_moving


def moves_at_pace(alloc: Allocation) -> bool:
    """Whether allocations of this group leave failed devices at the pace of its migrate block, as they leave a drained
    node: those of a service, unless they are a gang, which restarts as a whole."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    is_service = alloc.job is not None and alloc.job.type == status.JOB_SERVICE
    return is_service and group is not None and group.migrate is not None and group.gang is None


def leaves_devices(alloc: Allocation, failed: Set[str]) -> bool:
    """Whether an allocation runs on one of these devices, its job wants it moved, and it is not marked yet."""
    if is_client_terminal(alloc) or alloc.desired_status != status.DESIRED_RUN or alloc.desired_transition.migrate:
        return False
    group = alloc.job.group(alloc.task_group) if alloc.job is not None and alloc.job.type in MOVABLE else None
    if group is None:
        return False
    for task in group.tasks:
        resources = alloc.allocated_resources.tasks.get(task.name)
        for device in resources.devices if resources is not None else ():
            head = (device.vendor, device.type, device.name)
            if any("/".join((*head, device_of(each))) in failed for each in device.device_ids) and any(
                _names(request, head) and _policy(request, group) == "move" for request in task.resources.devices
            ):
                return True
    return False


def _policy(request: RequestedDevice, group: TaskGroup) -> str:
    return request.on_failure or ("move" if group.requeue is not None else "notify")


def _names(request: RequestedDevice, head: tuple[str, str, str]) -> bool:
    """Whether a request, or one of its alternatives, names devices of this kind."""
    if request.first_available:
        return any(_names(other, head) for other in request.first_available)
    parts = tuple(request.name.split("/", 2))
    return parts == (head[1:2] if len(parts) == 1 else head[: len(parts)])
