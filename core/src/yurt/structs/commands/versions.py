"""The rules of a region while its servers are upgraded one by one.

Every server of a region must make the same of each command. Versions differ in their rules, in the commands that they
know, and in the fields of those: a server drops a field that it does not know. So the leader writes by the newest rules
that all servers of the region apply. What is newer waits for the last upgrade: what agents report is left out until
then, and what users ask for is refused, because it would be acknowledged and lost.

A new command, a new field of a command or a stored row, or a new value of such a field raises `RULES_VERSION` and
stands in a table below
(`tests/structs/test_versions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec

from yurt.sdk.device import MIG
from yurt.sdk.errors import Conflict, Reason
from yurt.sdk.mig import MIG_PROFILES
from yurt.sdk.value import Value, replace
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.accounting.usage_day import UsageDay
from yurt.structs.alloc import AllocatedDeviceResource, Allocation, IdleState
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands.allocs import AllocUpdate, AnnounceIdleEnd, EndIdleAllocs, IdleReport, KeepAlloc
from yurt.structs.commands.base import Command
from yurt.structs.commands.cluster import SetClusterID
from yurt.structs.commands.codec import AnyCommand
from yurt.structs.commands.nodes import SetDeviceEligibility
from yurt.structs.commands.restore import RestoreCommand, is_abandonment
from yurt.structs.commands.volumes import DeleteHostVolume, DeleteHostVolumeClaim
from yurt.structs.node import Attribute, DeviceHealth, Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import DeploymentUpdate, Plan
from yurt.structs.resources import RequestedDevice
from yurt.structs.rules import (
    ACCOUNTING_RULES,
    CHANGED_VOLUME_RULES,
    CLUSTER_ID_RULES,
    DELETING_VOLUME_RULES,
    DEVICE_PART_RULES,
    DEVICE_RULES,
    FEWER_CANARIES_RULES,
    GANG_MEMBER_RULES,
    MIG_RULES,
    PLAN_ORDER_RULES,
    RECLAIM_RULES,
    RULES_VERSION,
    UNPUBLISHED_RULES,
)
from yurt.structs.summary import JobSummary
from yurt.structs.volumes.host import DELETING, UNAVAILABLE, HostVolume

C = TypeVar("C", bound=Command)
S = TypeVar("S", bound=msgspec.Struct)


class RegionRules(Value):
    """The newest rules that every server of a region applies."""

    version: int = RULES_VERSION
    behind: tuple[str, ...] = ()
    """The servers that apply older rules than this one."""


class Addition(msgspec.Struct, frozen=True):
    """A command or field that older servers do not know."""

    rules: int
    """The first version of the rules with it."""
    name: str
    """Its name in messages to users; "" for what agents report, which is left out instead of refused."""
    instead: Any = None
    """For a value that agents report: what older servers get."""


ADDED_COMMANDS: Final[Mapping[type[Command], Addition]] = {
    AnnounceIdleEnd: Addition(DEVICE_RULES, "ending idle allocations"),
    EndIdleAllocs: Addition(DEVICE_RULES, "ending idle allocations"),
    KeepAlloc: Addition(DEVICE_RULES, "keeping an idle allocation"),
    SetClusterID: Addition(CLUSTER_ID_RULES, "the ID of the cluster"),
    SetDeviceEligibility: Addition(DEVICE_RULES, "the eligibility of a device"),
}
ADDED_FIELDS: Final[Mapping[type[msgspec.Struct], Mapping[str, Addition]]] = {
    AllocatedDeviceResource: {"part_milli": Addition(DEVICE_PART_RULES, "")},
    Allocation: {"accounting": Addition(ACCOUNTING_RULES, ""), "idle": Addition(DEVICE_RULES, "")},
    AllocUpdate: {"accounting": Addition(ACCOUNTING_RULES, ""), "idle": Addition(DEVICE_RULES, "")},
    DeleteHostVolume: {"now": Addition(CHANGED_VOLUME_RULES, "")},
    DeleteHostVolumeClaim: {"now": Addition(CHANGED_VOLUME_RULES, "")},
    Namespace: {"idle": Addition(DEVICE_RULES, '"idle" of a namespace')},
    Node: {"device_marks": Addition(DEVICE_RULES, "")},
    NodeDevice: {"health": Addition(DEVICE_RULES, "")},
    DeviceHealth: {"trial": Addition(DEVICE_PART_RULES, "")},
    DeploymentUpdate: {"canaries": Addition(FEWER_CANARIES_RULES, "")},
    DeviceAccounting: {"unattributed_ms": Addition(RECLAIM_RULES, "")},
    IdleReport: {"job_version": Addition(RECLAIM_RULES, "")},
    JobSummary: {
        "plan_index": Addition(PLAN_ORDER_RULES, ""),
        "plan_token": Addition(PLAN_ORDER_RULES, ""),
        "plan_snapshot_index": Addition(PLAN_ORDER_RULES, ""),
    },
    IdleState: {
        "spared_by_use": Addition(RECLAIM_RULES, ""),
        "spared_by_keep": Addition(RECLAIM_RULES, ""),
        "policy_version": Addition(RECLAIM_RULES, ""),
    },
    Plan: {"gang_members": Addition(GANG_MEMBER_RULES, "")},
    NodePool: {"idle": Addition(DEVICE_RULES, '"idle" of a node pool')},
    RequestedDevice: {
        "idle": Addition(DEVICE_RULES, '"idle" of a device'),
        "on_failure": Addition(DEVICE_RULES, '"on_failure" of a device'),
    },
    SetDeviceEligibility: {"mark_index": Addition(RECLAIM_RULES, "a condition on the mark of a device")},
    UsageDay: {
        "unattributed_ms": Addition(RECLAIM_RULES, ""),
        "idle_ended": Addition(RECLAIM_RULES, ""),
        "idle_spared_by_use": Addition(RECLAIM_RULES, ""),
        "idle_spared_by_keep": Addition(RECLAIM_RULES, ""),
    },
}
ADDED_VALUES: Final[Mapping[tuple[type[msgspec.Struct], str], Mapping[Any, Addition]]] = {
    (HostVolume, "state"): {DELETING: Addition(DELETING_VOLUME_RULES, "", instead=UNAVAILABLE)},
}
"""By the struct and its field: an older server cannot decode a value that its own type does not list.

What agents report is replaced by `instead` until all servers know the value.
"""

ADDED_ATTRIBUTES: Final[Mapping[str, Addition]] = {MIG_PROFILES: Addition(MIG_RULES, "")}
"""Attributes of devices that older servers would act upon wrongly, though they can store them.

Without `mig_profiles` no server books an instance that does not exist yet: an older leader would not see that two
of them overlap.
"""
DEVICE_KINDS: Final = (NodeDeviceResource, NodeDevice)
SHARING: Final = "sharing"
ADDED_MODES: Final[Mapping[str, tuple[str, Addition]]] = {MIG: (MIG_PROFILES, Addition(MIG_RULES, ""))}
"""Modes in the attribute `sharing` that devices have only with another attribute, which older servers do not know.

A server that sees `mig` without the profiles takes the whole card for one instance that was made by hand.
"""


def region_rules(servers: Mapping[str, int]) -> RegionRules:
    """The rules of a region whose servers publish these versions; 0 is a version that does not publish its rules."""
    applied = {name: version or UNPUBLISHED_RULES for name, version in servers.items()}
    return RegionRules(
        version=min([RULES_VERSION, *applied.values()]),
        behind=tuple(sorted(name for name, version in applied.items() if version < RULES_VERSION)),
    )


def ruled(command: C, region: RegionRules) -> C:
    """The command as every server of the region applies it, marked with its rules; raises Conflict where it cannot be.

    Without older servers only the mark is set, since every command passes here.
    """
    if region.version < RULES_VERSION:
        command = _without_additions(command, region)
    return replace(command, rules_version=region.version)


def as_stored(value: S, region: RegionRules) -> S:
    """A value as every server of the region stores it; raises Conflict like `ruled`.

    What is decided by a value before it is written must be decided by this one: the log has no other.
    """
    if region.version >= RULES_VERSION:
        return value
    older: S = _older(value, region)
    return older


def _without_additions(command: C, region: RegionRules) -> C:
    if isinstance(command, RestoreCommand) and not is_abandonment(command):
        raise _newer("restoring a snapshot", region)
    added = ADDED_COMMANDS.get(type(command))
    if added is not None and added.rules > region.version:
        raise _newer(added.name, region)
    older: C = _older(command, region)
    return older


@cache
def _holders() -> frozenset[type]:
    """The types of structs that may hold an addition, at any depth: other values need no search."""
    inner: dict[type, set[type]] = {}
    changed: set[type] = {*ADDED_FIELDS, *(kind for kind, _ in ADDED_VALUES), *DEVICE_KINDS}
    rest: list[Any] = [*changed, *get_args(AnyCommand)]
    while rest:
        kind = rest.pop()
        if kind not in inner:
            inner[kind] = set(_structs_in(get_type_hints(kind).values()))
            rest.extend(inner[kind])
    found = set(changed)
    while more := {kind for kind, held in inner.items() if held & found} - found:
        found |= more
    return frozenset(found)


def _structs_in(hints: Iterable[Any]) -> Iterator[type]:
    for hint in hints:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint
        yield from _structs_in(get_args(hint))


def _newer(name: str, region: RegionRules) -> Conflict:
    return Conflict(
        f"{name} needs all servers of the region on the newer version; these run an older one: "
        f"{', '.join(region.behind)}. Upgrade them and try again",
        reason=Reason.UPGRADE_UNFINISHED,
    )


def _older(value: Any, region: RegionRules) -> Any:
    """The value without what older servers do not know; the same object when there is nothing of it."""
    if isinstance(value, msgspec.Struct):
        if type(value) is NodeDeviceResource:
            value = _without_added_modes(value, region)
        changes = _changes(value, region) if type(value) in _holders() else {}
        return replace(value, **changes) if changes else value
    if type(value) is tuple:
        parts = [_older(each, region) for each in value]
        is_same = all(part is each for part, each in zip(parts, value, strict=True))
        return value if is_same else tuple(parts)
    if isinstance(value, Mapping):
        entries = {key: _older(each, region) for key, each in value.items()}
        return value if all(entries[key] is each for key, each in value.items()) else entries
    return value


def _changes(value: msgspec.Struct, region: RegionRules) -> dict[str, Any]:
    parts = {name: getattr(value, name) for name in value.__struct_fields__}
    older = {name: _older_part(type(value), name, part, region) for name, part in parts.items()}
    return {name: part for name, part in older.items() if part is not parts[name]}


def _older_part(kind: type[msgspec.Struct], name: str, part: Any, region: RegionRules) -> Any:
    """A field's value as older servers know it; raises Conflict where a user asked for what they do not know."""
    addition = ADDED_FIELDS.get(kind, {}).get(name)
    if addition is not None and addition.rules > region.version:
        older = _default(kind, name)
    elif kind in DEVICE_KINDS and name == "attributes":
        newer = {each for each, added in ADDED_ATTRIBUTES.items() if added.rules > region.version}
        return {key: value for key, value in part.items() if key not in newer} if newer & part.keys() else part
    else:
        values = ADDED_VALUES.get((kind, name))
        addition = None if values is None else values.get(part)
        if addition is None or addition.rules <= region.version:
            return _older(part, region)
        older = addition.instead
    if addition.name and part != older:
        raise _newer(addition.name, region)
    return older


def _without_added_modes(group: NodeDeviceResource, region: RegionRules) -> NodeDeviceResource:
    """A group of devices without the modes that older servers would read in another way."""
    attributes = [group.attributes, *(each.attributes for each in group.instances)]
    newer = frozenset(
        mode
        for mode, (name, added) in ADDED_MODES.items()
        if added.rules > region.version and any(name in each for each in attributes)
    )
    if not newer:
        return group
    instances = tuple(replace(each, attributes=_without_modes(each.attributes, newer)) for each in group.instances)
    return replace(group, attributes=_without_modes(group.attributes, newer), instances=instances)


def _without_modes(attributes: Mapping[str, Attribute], modes: frozenset[str]) -> Mapping[str, Attribute]:
    sharing = attributes.get(SHARING)
    if sharing is None or sharing.string_val is None:
        return attributes
    left = ",".join(mode for mode in sharing.string_val.split(",") if mode.strip() not in modes)
    others = {name: each for name, each in attributes.items() if name != SHARING}
    return others | {SHARING: replace(sharing, string_val=left)} if left else others


def _default(kind: type[msgspec.Struct], name: str) -> Any:
    (field,) = [each for each in msgspec.structs.fields(kind) if each.name == name]
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
