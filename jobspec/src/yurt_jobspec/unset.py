"""The fields that a job leaves unset, as nulls: Nomad's servers and command line write every field of a parsed job.

The tables of `schema` say what a block may contain. Here is what they cannot say: fields that no file sets, and
fields that are written only where they have a value.
"""

from __future__ import annotations

from typing import Any, Final

from .schema import ChildBlock, schema_of

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
    "RequestedDevice": "Compute FirstAvailable MemoryMB Share Topology",
    "Task": "CSIPluginConfig",
    "TaskGroup": "Gang",
}
_MORE_BLOCKS: Final = {"Task": (ChildBlock("Identity", "block", "WorkloadIdentity"),)}
"""Objects that come from blocks of another field: the default identity of a task."""


def with_unset_fields(job: dict[str, Any]) -> dict[str, Any]:
    """The job with a null for each field that has no value, at every level."""
    return _filled(job, "Job")


def _filled(value: dict[str, Any], block: str) -> dict[str, Any]:
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
