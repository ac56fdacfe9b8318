"""Converts values to JSON data, and adds the fields that a job leaves unset.

Nomad's servers and command line write every field of a parsed job, as null where it has no value. The tables of
`schema` say what a block may contain; here is what they cannot say: fields that no file sets, and fields that are
written only where they have a value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from .numbers import Number
from .schema import ApiObject, ChildBlock, schema_of
from .values import Value, entries_of, is_null, items_of

Charge = Callable[[int], None]


def number_to_plain(value: Number) -> int | float:
    """An int for a whole number of at most 64 bits, otherwise a float."""
    if isinstance(value, Decimal):
        return float(value) if value else 0
    return value if -(2**63) <= value < 2**64 else float(value)


def to_plain(value: Value, charge: Charge) -> Any:
    """JSON data: objects and maps as dict, sequences as list; `charge` receives the number of elements."""
    if is_null(value):
        return None
    if type(value) in (str, bool):
        return value
    if type(value) in (int, Decimal):
        return number_to_plain(value)
    items = items_of(value)
    if items is not None:
        charge(len(items))
        return [to_plain(item, charge) for item in items]
    entries = entries_of(value)
    assert entries is not None, type(value)
    charge(len(entries))
    return {key: to_plain(item, charge) for key, item in entries.items()}


def to_driver_config(value: Value, charge: Charge, *, nested: bool = False) -> Any:
    """An argument of a free-form block; an object becomes a list of one, like a block; nulls are dropped."""
    entries = entries_of(value)
    if entries is not None:
        charge(len(entries))
        plain = {key: to_driver_config(item, charge, nested=True) for key, item in entries.items() if not is_null(item)}
        return plain if nested else [plain]
    items = items_of(value)
    if items is not None:
        charge(len(items))
        return [to_driver_config(item, charge, nested=True) for item in items]
    return to_plain(value, charge)


_UNSETTABLE: Final = {
    "ConsulExposeConfig": "Path",
    "ConsulProxy": "ExposeConfig",
    "Job": "ConsulNamespace CreateIndex DispatchIdempotencyToken JobModifyIndex ModifyIndex NomadTokenID ParentID "
    "Payload Stable Status StatusDescription Stop SubmitTime VaultNamespace Version VersionTag",
    "PeriodicConfig": "SpecType",
    "ScalingPolicy": "Target",
    "Task": "Identity",
    "TaskScalingPolicy": "Target",
}
"""Fields of the API that no file sets, by the block."""
_WITH_VALUE_ONLY: Final = {
    "DeviceTopology": "NVLink NUMA",
    "Gang": "Elastic Rendezvous",
    "Job": "Checkpoint Requeue",
    "RequestedDevice": "Compute FirstAvailable Idle MemoryMB OnFailure Share Topology",
    "Task": "CSIPluginConfig",
    "TaskGroup": "Checkpoint Gang Requeue",
}
"""Fields left out while unset, by the block: those of Yurt alone, and those that Nomad omits too."""
_MORE_BLOCKS: Final = {"Task": (ChildBlock("Identity", "block", "WorkloadIdentity"),)}
"""Objects that come from blocks of another field: the default identity of a task."""


def with_unset_fields(job: ApiObject) -> ApiObject:
    """The job with null for each unset field, at every level."""
    return _filled(job, "Job")


def _filled(value: ApiObject, block: str) -> ApiObject:
    schema = schema_of(block)
    names = [field.field for field in schema.attributes.values()] + [child.field for child in schema.blocks.values()]
    silent = _WITH_VALUE_ONLY.get(block, "").split()
    filled = dict.fromkeys(
        name
        for name in (*names, *_UNSETTABLE.get(block, "").split())
        if not name.startswith("-") and name not in silent
    )
    filled.update(value)
    for child in (*schema.blocks.values(), *_MORE_BLOCKS.get(block, ())):
        if child.block and filled.get(child.field) is not None:
            filled[child.field] = _children(filled[child.field], child)
    return filled


def _children(value: Any, child: ChildBlock) -> Any:
    match child.kind:
        case "blocks":
            return [_filled(item, child.block) for item in value]
        case "keyed":
            return {name: _filled(item, child.block) for name, item in value.items()}
    return _filled(value, child.block)
