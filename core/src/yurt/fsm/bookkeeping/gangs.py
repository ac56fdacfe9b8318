"""Generations of gangs with a rendezvous."""

from __future__ import annotations

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.state.gangs import candidates, gang_of, member_of, size_needed
from yurt.state.tables import Tables
from yurt.structs.commands import FormGang, Rejected
from yurt.structs.queueing.gang import GangRoster


def form_gang(edit: Edit, command: FormGang) -> Rejected | None:
    """Store the roster of the next generation.

    That its members wait for it is what the leader knows. That they are all of the gang, and enough, is decided here:
    an allocation may have ended, or another have been placed, since the leader looked.
    """
    key = command.namespace, command.job_id, command.group
    job = edit.job(key[:2])
    group = job.group(command.group) if job is not None else None
    if job is None or group is None:
        return not_found(f'group "{command.group}" of job "{command.job_id}" not found')
    last = edit.tx.get(Tables.gang_rosters, key)
    if command.after != (last.generation if last is not None else 0):
        return conflict("another generation of the gang has formed")
    allocs = edit.tx.rows(Tables.allocs, edit.tx.keys_where(Tables.allocs, "job", key[:2]))
    candidate_allocs = candidates(allocs, command.group)
    if tuple(alloc.id for alloc in candidate_allocs) != command.members or not candidate_allocs:
        return conflict("the members of the gang have changed")
    gang = gang_of(candidate_allocs[0])
    if gang is None or gang.rendezvous is None:
        return invalid(f'group "{command.group}" of job "{command.job_id}" has no rendezvous')
    needed = size_needed(
        gang,
        group.count,
        last,
        lambda alloc_id: edit.tx.get(Tables.allocs, alloc_id),
        candidate_allocs=candidate_allocs,
    )
    if len(candidate_allocs) < needed:
        return conflict("the gang has too few members")
    port = gang.rendezvous.port
    members = [member_of(alloc, port) for alloc in candidate_allocs]
    if any(member is None for member in members):
        return invalid(f'an allocation of group "{command.group}" has no port "{port}"')
    roster = GangRoster(
        namespace=command.namespace,
        job_id=command.job_id,
        group=command.group,
        generation=edit.index,
        members=tuple(member for member in members if member is not None),
        create_index=last.create_index if last is not None else edit.index,
        modify_index=edit.index,
    )
    edit.tx.put(Tables.gang_rosters, key, roster)
    return None
