"""Limits of quotas on stored data: variables and dynamic host volumes.

The commands that store them name the region of the server that proposed them, since only a quota's limit of that region
counts. Entries of earlier versions name none, and are not limited.
"""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import invalid
from yurt.state.quota_totals import MIB, host_volumes_bytes, members_of, mib_of, size_of_volume, variables_bytes
from yurt.structs.commands import Rejected
from yurt.structs.quota import QuotaLimit, QuotaSpec
from yurt.structs.variable import EncryptedVariable
from yurt.structs.volumes.host import HostVolume


def variable_refusal(
    edit: Edit, variable: EncryptedVariable, known: EncryptedVariable | None, region: str
) -> Rejected | None:
    """The rejection of a variable that would exceed the quota of its namespace."""
    spec, limit = _limit(edit, variable.namespace, region)
    growth = len(variable.data) - (0 if known is None else len(known.data))
    if spec is None or limit is None or not limit.variables_mb or growth <= 0:
        return None
    used = variables_bytes(edit.tx.base, members_of(edit.tx.base, spec.name))
    assert known is None or used >= len(known.data), (spec.name, used, "what is stored is counted")
    if used + growth <= max(0, limit.variables_mb) * MIB:
        return None
    return invalid(_exceeded(spec.name, "variables", limit.variables_mb, used, f"{growth} bytes"))


def host_volume_refusal(edit: Edit, volume: HostVolume, known: HostVolume | None, region: str) -> Rejected | None:
    """The rejection of a host volume that would exceed the quota of its namespace.

    What a node reports of a volume that was asked for before is stored as it is: the data is there already.
    """
    spec, limit = _limit(edit, volume.namespace, region)
    if spec is None or limit is None or not limit.host_volumes_mb or _asks_the_same(volume, known):
        return None
    size = volume.requested_capacity_max_bytes or volume.requested_capacity_min_bytes or volume.capacity_bytes
    if not size:
        return invalid(
            f'quota "{spec.name}" limits the capacity of host volumes: give the volume a capacity_max or capacity_min'
        )
    growth = size - (0 if known is None else size_of_volume(known))
    used = host_volumes_bytes(edit.tx.base, members_of(edit.tx.base, spec.name))
    if growth <= 0 or used + growth <= max(0, limit.host_volumes_mb) * MIB:
        return None
    return invalid(_exceeded(spec.name, "host volumes", limit.host_volumes_mb, used, f"{mib_of(growth)} MiB"))


def _limit(edit: Edit, namespace: str, region: str) -> tuple[QuotaSpec | None, QuotaLimit | None]:
    spec = edit.quota_of(namespace) if region else None
    return spec, None if spec is None else spec.limit_of(region)


def _asks_the_same(volume: HostVolume, known: HostVolume | None) -> bool:
    return known is not None and (
        known.requested_capacity_max_bytes == volume.requested_capacity_max_bytes
        and known.requested_capacity_min_bytes == volume.requested_capacity_min_bytes
    )


def _exceeded(name: str, what: str, limit_mb: int, used: int, needed: str) -> str:
    if limit_mb < 0:
        return f'quota "{name}" allows no {what}'
    return f'quota "{name}" allows {limit_mb} MiB of {what}; {mib_of(used)} MiB are used, {needed} more are needed'
