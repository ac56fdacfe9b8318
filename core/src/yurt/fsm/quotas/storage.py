"""Limits of quotas on stored data: variables and dynamic host volumes.

The commands that store them name the region of the server that proposed them, since only a quota's limit of that region
counts. Entries of earlier versions name none, and are not limited.
"""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import invalid
from yurt.state.quota_totals import (
    MIB,
    chain_of,
    host_volumes_bytes,
    members_of,
    mib_of,
    size_of_volume,
    variables_bytes,
)
from yurt.structs.commands import Rejected
from yurt.structs.quota import QuotaLimit
from yurt.structs.variable import EncryptedVariable
from yurt.structs.volumes.host import HostVolume


def variable_refusal(
    edit: Edit, variable: EncryptedVariable, existing: EncryptedVariable | None, region: str
) -> Rejected | None:
    """The rejection of a variable that would exceed the quota of its namespace."""
    growth = len(variable.data) - (0 if existing is None else len(existing.data))
    for name, limit in _limits(edit, variable.namespace, region):
        if not limit.variables_mb or growth <= 0:
            continue
        used = variables_bytes(edit.tx.base, members_of(edit.tx.base, name))
        assert existing is None or used >= len(existing.data), (name, used, "a stored variable is counted")
        if used + growth > max(0, limit.variables_mb) * MIB:
            return invalid(_exceeded(name, "variables", limit.variables_mb, used, f"{growth} bytes"))
    return None


def host_volume_refusal(edit: Edit, volume: HostVolume, existing: HostVolume | None, region: str) -> Rejected | None:
    """The rejection of a host volume that would exceed the quota of its namespace.

    What a node reports of a volume that was asked for before is stored as it is: the data is there already.
    """
    limits = [(name, limit) for name, limit in _limits(edit, volume.namespace, region) if limit.host_volumes_mb]
    if not limits or _asks_the_same(volume, existing):
        return None
    size = volume.requested_capacity_max_bytes or volume.requested_capacity_min_bytes or volume.capacity_bytes
    if not size:
        return invalid(
            f'quota "{limits[0][0]}" limits the capacity of host volumes: '
            "give the volume a capacity_max or capacity_min"
        )
    growth = size - (0 if existing is None else size_of_volume(existing))
    for name, limit in limits:
        used = host_volumes_bytes(edit.tx.base, members_of(edit.tx.base, name))
        if growth > 0 and used + growth > max(0, limit.host_volumes_mb) * MIB:
            return invalid(_exceeded(name, "host volumes", limit.host_volumes_mb, used, f"{mib_of(growth)} MiB"))
    return None


def _limits(edit: Edit, namespace: str, region: str) -> list[tuple[str, QuotaLimit]]:
    """The limits in a region of the namespace's quota and of the quotas above it."""
    spec = edit.quota_of(namespace) if region else None
    chain = () if spec is None else chain_of(edit.tx.base, spec.name)
    return [(each.name, limit) for each in chain if (limit := each.limit_of(region)) is not None]


def _asks_the_same(volume: HostVolume, existing: HostVolume | None) -> bool:
    return existing is not None and (
        existing.requested_capacity_max_bytes == volume.requested_capacity_max_bytes
        and existing.requested_capacity_min_bytes == volume.requested_capacity_min_bytes
    )


def _exceeded(name: str, what: str, limit_mb: int, used: int, needed: str) -> str:
    if limit_mb < 0:
        return f'quota "{name}" allows no {what}'
    return f'quota "{name}" allows {limit_mb} MiB of {what}; {mib_of(used)} MiB are used, {needed} more are needed'
