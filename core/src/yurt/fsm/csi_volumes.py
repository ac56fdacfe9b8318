"""Registered CSI volumes. Their claims derive from the allocations, see `yurt.state.claims`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.state.claims import Claim, claims_of_current_jobs, claims_of_volume
from yurt.state.csi_plugins import csi_plugins
from yurt.structs.commands import CsiVolumeCommand, DeleteVolumes, Rejected, UpsertVolumes
from yurt.structs.rules import CSI_CLAIM_RULES
from yurt.structs.volumes.csi import CSIVolume

LASTING = ("external_id", "plugin_id")
"""Fields that cannot change while a volume is in use."""


def apply_csi_volume(edit: Edit, command: CsiVolumeCommand) -> Rejected | None:
    """Apply a command on CSI volumes."""
    match command:
        case UpsertVolumes():
            return _put_volumes(edit, command)
        case DeleteVolumes():
            return _delete_volumes(edit, command)
        case _:
            assert_never(command)


def claims_before(edit: Edit, namespace: str) -> Callable[[str], Sequence[Claim]]:
    """The claims of a namespace's volumes before the command, by its rules; a function from the volume's name."""
    if edit.rules_version >= CSI_CLAIM_RULES:
        return partial(claims_of_volume, edit.tx.base, namespace)
    by_volume = claims_of_current_jobs(edit.tx.base, namespace)
    return lambda volume: by_volume.get(volume, ())


def _put_volumes(edit: Edit, command: UpsertVolumes) -> Rejected | None:
    """Register or change volumes."""
    unknown = _unknown_plugin(edit, command) if command.needs_plugins else ""
    if unknown:
        return not_found(f'no CSI plugin "{unknown}" is known: run it as a task with a csi_plugin block first')
    for volume in command.volumes:
        refused = _refusal(edit, volume)
        if refused is not None:
            return refused
        key = (volume.namespace, volume.id)
        existing: CSIVolume | None = edit.tx.get(Tables.csi_volumes, key)
        stored = replace(
            volume,
            create_index=edit.index if existing is None else existing.create_index,
            create_time=command.now if existing is None else existing.create_time,
            modify_index=edit.index,
            modify_time=command.now,
        )
        edit.tx.put(Tables.csi_volumes, key, stored)
    return None


def _unknown_plugin(edit: Edit, command: UpsertVolumes) -> str:
    plugins = csi_plugins(edit.tx.base)
    return next((volume.plugin_id for volume in command.volumes if volume.plugin_id not in plugins), "")


def _refusal(edit: Edit, volume: CSIVolume) -> Rejected | None:
    if not volume.id or not volume.plugin_id:
        return invalid("a CSI volume needs an id and the id of its plugin")
    if edit.tx.get(Tables.namespaces, volume.namespace) is None:
        return not_found(f'namespace "{volume.namespace}" not found')
    existing: CSIVolume | None = edit.tx.get(Tables.csi_volumes, (volume.namespace, volume.id))
    changed = [name for name in LASTING if existing is not None and getattr(existing, name) != getattr(volume, name)]
    if changed and claims_before(edit, volume.namespace)(volume.id):
        return conflict(f"volume in use: {volume.id}; its {' and '.join(changed)} cannot change")
    return None


def _delete_volumes(edit: Edit, command: DeleteVolumes) -> Rejected | None:
    """Deregister volumes; with `force` also those in use."""
    for namespace, volume_id in command.keys:
        if edit.tx.get(Tables.csi_volumes, (namespace, volume_id)) is None:
            return not_found(f"volume not found: {volume_id}")
        users = () if command.is_forced else claims_before(edit, namespace)(volume_id)
        if users:
            return conflict(f"volume in use: {volume_id}, by allocations {', '.join(each.alloc_id for each in users)}")
        edit.tx.delete(Tables.csi_volumes, (namespace, volume_id))
    return None
