"""The members of a gang with a rendezvous, the end of its generation, and the requirements of the next one. Pure.

Members that have completed are not missed: the others are about to. A member that is lost, or stopped, ends its
generation, because programs that communicate cannot go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.policies import Gang
from yurt.structs.predicates import alloc_index
from yurt.structs.queueing.gang import GangKey, GangMember, GangRoster

FindAlloc = Callable[[str], Allocation | None]
LIVE: Final = frozenset({status.CLIENT_PENDING, status.CLIENT_RUNNING})


def gang_key(alloc: Allocation) -> GangKey:
    """The key of the gang that an allocation of a group belongs to."""
    return alloc.namespace, alloc.job_id, alloc.task_group


def gang_of(alloc: Allocation) -> Gang | None:
    """The `gang` block of an allocation's group, if it has a rendezvous."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    gang = group.gang if group is not None else None
    return gang if gang is not None and gang.rendezvous is not None else None


def is_live(alloc: Allocation) -> bool:
    """Whether an allocation is to run and has not ended, and its node is in contact."""
    return alloc.desired_status == status.DESIRED_RUN and alloc.client_status in LIVE


def candidates(allocs: Iterable[Allocation], group: str) -> list[Allocation]:
    """The members of the next generation, in the order of their ranks: that of the indexes in their names.

    A replacement has the index of the allocation that it replaces, so ranks are stable. While a new version rolls out,
    only its allocations count.
    """
    live = [alloc for alloc in allocs if alloc.task_group == group and is_live(alloc)]
    newest = max((_version(alloc) for alloc in live), default=0)
    return sorted(
        (alloc for alloc in live if _version(alloc) == newest), key=lambda alloc: (alloc_index(alloc.name), alloc.id)
    )


def loss(roster: GangRoster, find: FindAlloc) -> str:
    """The reason why a generation is over; "" while it may go on."""
    for member in roster.members:
        alloc = find(member.alloc_id)
        if alloc is None:
            return f"{member.name} is gone"
        if _is_done(alloc) or is_live(alloc):
            continue
        return f"{member.name} {'stops' if alloc.client_status in LIVE else f'is {alloc.client_status}'}"
    return ""


def size_needed(
    gang: Gang, count: int, roster: GangRoster | None, find: FindAlloc, *, candidate_allocs: Iterable[Allocation]
) -> int:
    """The number of members that the next generation needs; `candidate_allocs` are its candidates.

    A first one needs the gang's minimum. One that goes on with a member of the last one, or with the replacement of
    one, needs as many as that, or the minimum if the gang is elastic, less those that have completed.
    """
    least = gang.min or count
    if roster is None:
        return least
    names = {alloc.name for alloc in candidate_allocs}
    ends = [_is_done(alloc) if (alloc := find(member.alloc_id)) is not None else False for member in roster.members]
    if not any(member.name in names for member, done in zip(roster.members, ends, strict=True) if not done):
        return least
    return max(1, (least if gang.elastic else min(len(ends), count)) - sum(ends))


def member_of(alloc: Allocation, port: str) -> GangMember | None:
    """The roster's entry of a member; None without the port of the rendezvous."""
    resources = alloc.allocated_resources
    port_mapping = next((mapping for mapping in resources.shared.ports if mapping.label == port), None)
    if port_mapping is None:
        return None
    devices = (device for task in resources.tasks.values() for device in task.devices)
    return GangMember(
        alloc_id=alloc.id,
        name=alloc.name,
        node_id=alloc.node_id,
        address=port_mapping.host_ip,
        port=port_mapping.value,
        devices=sum(len(device.device_ids) for device in devices),
    )


def _is_done(alloc: Allocation) -> bool:
    """Whether a member has completed its work; a stopped one has not, whatever the exit status of its tasks."""
    return alloc.client_status == status.CLIENT_COMPLETE and alloc.desired_status == status.DESIRED_RUN


def _version(alloc: Allocation) -> int:
    return alloc.job.version if alloc.job is not None else 0
