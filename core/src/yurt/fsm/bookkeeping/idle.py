"""Ends of allocations that do not use their devices, and keep calls that put them off.

Clients measure and report; the leader proposes; `apply` decides here. Each command names the reports that it is based
on: it is rejected if an allocation is used again, was kept or has ended meanwhile. Only announced ends are carried
out, and of a gang all members end or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.eval_triggers import evaluation_of, mint_of
from yurt.fsm.evals import put_job_evaluation
from yurt.fsm.jobs import prune_versions, store_job
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation, IdleState
from yurt.structs.commands import AnnounceIdleEnd, EndIdleAllocs, KeepAlloc, Rejected
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import IdlePolicy
from yurt.structs.predicates import asks_devices, is_deployment_active, is_terminal
from yurt.structs.queueing.idle import CONTENDED, NOTIFY, SHRINK, STOP, idle_policy_of, is_kept, least_of
from yurt.structs.rules import RECLAIM_RULES

KEEP_MAX_S: Final = 7 * 24 * 3600
"""The longest time in seconds by which one call may put an end off."""
KEEPS_DEFAULT: Final = 3
"""The number of keep calls while other jobs wait, where the policy has no interactive block."""
_WAITING: Final = (status.EVAL_BLOCKED, status.EVAL_PENDING)


def apply_idle(edit: Edit, command: AnnounceIdleEnd | EndIdleAllocs | KeepAlloc) -> Rejected | None:
    """Apply a command on idle allocations."""
    match command:
        case AnnounceIdleEnd():
            return _announce(edit, command)
        case EndIdleAllocs():
            return _end(edit, command)
        case KeepAlloc():
            return _keep(edit, command)
        case _:
            assert_never(command)


def _announce(edit: Edit, command: AnnounceIdleEnd) -> Rejected | None:
    idle_allocs = _idle_allocs(edit, command.reports, now=command.now if command.ends_at else None)
    if isinstance(idle_allocs, Rejected):
        return idle_allocs
    is_announced = command.ends_at > 0
    reason, waiting = (command.reason, command.waiting_eval) if is_announced else ("", "")
    for alloc, idle in idle_allocs:
        changed = replace(idle, ends_at=command.ends_at, reason=reason, waiting_eval=waiting)
        _put(edit, alloc, changed, now=command.now)
    return None


def _end(edit: Edit, command: EndIdleAllocs) -> Rejected | None:
    idle_allocs = _idle_allocs(edit, command.reports, now=command.now)
    if isinstance(idle_allocs, Rejected):
        return idle_allocs
    first = idle_allocs[0][0]
    policy = idle_policy_of(first)
    if policy is None or policy.action != command.action or policy.action == NOTIFY:
        return conflict(f"the policy on idle devices of job {first.job_id} is another one by now")
    if not all(0 < idle.ends_at <= command.now for _, idle in idle_allocs):
        return conflict(f"the end of allocation {first.id} is not due")
    if (unfit := _unfit(edit, policy, idle_allocs)) is not None:
        return unfit
    if policy.when == CONTENDED:
        if not _waits(edit, command.waiting_eval):
            return conflict("nothing waits for the devices any more")
        if other := _ending_for(edit, command.waiting_eval):
            return conflict(f"allocation {other} is ending for the same job")
    assert first.job is not None, first.id
    if command.action == SHRINK or (command.action == STOP and first.job.type != status.JOB_BATCH):
        return _reduce(edit, command, idle_allocs)
    for alloc, idle in idle_allocs:
        ended = replace(idle, action=command.action, waiting_eval=command.waiting_eval)
        _put(edit, alloc, ended, now=command.now, desired=(status.DESIRED_EVICT, command.reason))
    return None


def _unfit(edit: Edit, policy: IdlePolicy, idle_allocs: list[tuple[Allocation, IdleState]]) -> Rejected | None:
    """The rejection of an end if an allocation does not run, is not idle for its window, or its node is out of
    contact."""
    for alloc, idle in idle_allocs:
        node = edit.tx.get(Tables.nodes, alloc.node_id)
        if node is None or node.status in status.NODE_UNRESPONSIVE:
            return conflict(f"the node of allocation {alloc.id} is out of contact")
        if alloc.client_status != status.CLIENT_RUNNING:
            return conflict(f"allocation {alloc.id} does not run")
        if idle.idle_for < policy.window:
            return conflict(f"allocation {alloc.id} has not been idle for the window of its policy")
    return None


def _ending_for(edit: Edit, eval_id: str) -> str:
    """The id of an allocation that is ending for an evaluation and whose end its client has not reported; "" for
    none."""
    for namespace in sorted(edit.tx.base.namespaces.keys()):
        for alloc_id in edit.tx.keys_where(Tables.allocs, "stopping", namespace):
            alloc = edit.alloc(alloc_id)
            if (
                alloc is not None
                and alloc.idle is not None
                and alloc.idle.action
                and alloc.idle.waiting_eval == eval_id
            ):
                return alloc_id
    return ""


def _reduce(edit: Edit, command: EndIdleAllocs, idle_allocs: list[tuple[Allocation, IdleState]]) -> Rejected | None:
    """Stop allocations and lower the count of their group by their number, so that they are not replaced."""
    first = idle_allocs[0][0]
    key = first.namespace, first.job_id
    job = edit.job(key)
    group = job.group(first.task_group) if job is not None else None
    if job is None or group is None or job.stop:
        return conflict(f"job {first.job_id} has changed")
    # A gang may run with fewer members than its count, which is the number that it may grow to.
    live = _live_count(edit, first) if command.action == SHRINK else group.count
    count, least = min(group.count, live) - len(idle_allocs), least_of(group, command.action)
    if count < least:
        return conflict(f"group {group.name} cannot shrink below {least}")
    latest = edit.tx.base.latest_deployment(*key)
    if latest is not None and is_deployment_active(latest):
        return conflict(f"job {first.job_id} has an active deployment")
    assert count < group.count, (key, count, "the count falls by the ended allocations, so that none is replaced")
    for alloc, idle in idle_allocs:
        ended = replace(idle, action=command.action, waiting_eval=command.waiting_eval)
        _put(edit, alloc, ended, now=command.now, desired=(status.DESIRED_STOP, command.reason))
    rejected = store_job(edit, replace(_with_count(job, group, count), submit_time=command.now))
    prune_versions(edit, key, keep=max(1, command.tracked_versions))
    stored = edit.job(key)
    if rejected is None and command.seed is not None and stored is not None:
        rejected = put_job_evaluation(edit, key, evaluation_of(stored, status.TRIGGER_SCALING, mint_of(command.seed)))
    return rejected


def _with_count(job: Job, changed: TaskGroup, count: int) -> Job:
    groups = (replace(group, count=count) if group.name == changed.name else group for group in job.task_groups)
    return replace(job, task_groups=tuple(groups))


def _keep(edit: Edit, command: KeepAlloc) -> Rejected | None:
    alloc = edit.alloc(command.alloc_id)
    if alloc is None:
        return not_found(f'allocation "{command.alloc_id}" not found')
    policy = idle_policy_of(alloc)
    if policy is None:
        return invalid(f"allocation {alloc.id} has no policy on idle devices, so nothing of it ends for being idle")
    if is_terminal(alloc):
        return conflict(f"allocation {alloc.id} has ended or is ending")
    if not 0 < command.duration <= KEEP_MAX_S * 10**9:
        return invalid(f"an end can be put off by 1 s to {KEEP_MAX_S // 3600} h")
    idle, most = alloc.idle or IdleState(), _keeps_max(policy)
    until = UnixNano(command.now + command.duration)
    if until <= idle.kept_until and not idle.kept_free:
        return conflict(f"allocation {alloc.id} is kept longer than that already")
    # With a policy that ends idle allocations in any case, every keep call counts.
    is_counted = policy.when != CONTENDED or _others_wait(edit, alloc)
    if is_counted and idle.keeps >= most:
        return conflict(
            f"allocation {alloc.id} was kept {idle.keeps} times while others waited, which is all that its job allows "
            f'(idle {{ interactive {{ keep = {most} }} }}), and others wait for node pool "{_pool(alloc)}"'
            if policy.when == CONTENDED
            else f"allocation {alloc.id} was kept {idle.keeps} times, which is all that its job allows "
            f"(idle {{ interactive {{ keep = {most} }} }})"
        )
    if until <= idle.kept_until and not is_counted:
        return conflict(f"allocation {alloc.id} is kept longer than that already")
    extended = replace(
        idle, kept_until=until, keeps=idle.keeps + (1 if is_counted else 0), ends_at=UnixNano(0), reason=""
    )
    spared_count = idle.spared_by_keep + (command.rules_version >= RECLAIM_RULES and idle.ends_at > 0)
    extended = replace(extended, waiting_eval="", kept_free=not is_counted, spared_by_keep=spared_count)
    _put(edit, alloc, extended, now=command.now)
    return None


def _keeps_max(policy: IdlePolicy) -> int:
    return policy.interactive.keep if policy.interactive is not None else KEEPS_DEFAULT


def _pool(alloc: Allocation) -> str:
    return alloc.job.node_pool if alloc.job is not None else ""


def _others_wait(edit: Edit, alloc: Allocation) -> bool:
    """Whether an evaluation of another job that asks for devices waits in the allocation's node pool."""
    for name in _WAITING:
        for eval_id in edit.tx.keys_where(Tables.evals, "status", name):
            evaluation = edit.evaluation(eval_id)
            key = (evaluation.namespace, evaluation.job_id) if evaluation is not None else None
            if key is None or key == (alloc.namespace, alloc.job_id):
                continue
            job = edit.job(key)
            if job is not None and not job.stop and job.node_pool == _pool(alloc) and asks_devices(job):
                return True
    return False


def _waits(edit: Edit, eval_id: str) -> bool:
    evaluation = edit.evaluation(eval_id)
    return evaluation is not None and evaluation.status in _WAITING


def _idle_allocs(
    edit: Edit, reports: Mapping[str, int], *, now: int | None
) -> list[tuple[Allocation, IdleState]] | Rejected:
    """The allocations of a command, or its rejection if one is not idle as reported; without `now`, kept ones are
    accepted."""
    idle_allocs: list[tuple[Allocation, IdleState]] = []
    for alloc_id, index in sorted(reports.items()):
        alloc = edit.alloc(alloc_id)
        if alloc is None:
            return not_found(f'allocation "{alloc_id}" not found')
        if is_terminal(alloc):
            return conflict(f"allocation {alloc_id} has ended or is ending")
        idle = alloc.idle
        if idle is None or idle.idle_for <= 0 or idle.report_index != index:
            return conflict(f"allocation {alloc_id} has been used since, or has reported again")
        policy = idle_policy_of(alloc)
        if now is not None and policy is not None and is_kept(idle, policy, now):
            return conflict(f"allocation {alloc_id} is kept")
        idle_allocs.append((alloc, idle))
    if not idle_allocs:
        return invalid("no allocation is named")
    first = idle_allocs[0][0]
    groups = {(alloc.namespace, alloc.job_id, alloc.task_group) for alloc, _ in idle_allocs}
    if len(groups) > 1:
        return invalid("the allocations are of several groups")
    policy = idle_policy_of(first)
    # Without `now` an announcement is withdrawn, which does not harm the members that are not named.
    is_whole = now is not None and policy is not None and policy.action != SHRINK
    if is_whole and (missing := _missing_member(edit, first, reports)):
        return conflict(f"allocation {missing} of the same gang is not idle")
    return idle_allocs


def _live_count(edit: Edit, first: Allocation) -> int:
    """The number of allocations of the group that run or are to run."""
    allocs = map(edit.alloc, edit.tx.keys_where(Tables.allocs, "live", (first.namespace, first.job_id)))
    return sum(1 for alloc in allocs if alloc is not None and alloc.task_group == first.task_group)


def _missing_member(edit: Edit, first: Allocation, reports: Mapping[str, int]) -> str:
    """The id of a live member of the allocation's gang that `reports` lacks; "" if all are there, or without a gang."""
    group = first.job.group(first.task_group) if first.job is not None else None
    if group is None or group.gang is None:
        return ""
    for alloc_id in edit.tx.keys_where(Tables.allocs, "job", (first.namespace, first.job_id)):
        alloc = edit.alloc(alloc_id)
        is_member = alloc is not None and alloc.task_group == first.task_group and not is_terminal(alloc)
        if is_member and alloc_id not in reports:
            return alloc_id
    return ""


def _put(
    edit: Edit,
    alloc: Allocation,
    idle: IdleState,
    *,
    now: int,
    desired: tuple[status.DesiredStatus, str] | None = None,
) -> None:
    """Store the idle state; the client then fetches the allocation, to notify or to end its tasks."""
    changed = replace(
        alloc, idle=idle, modify_index=edit.index, alloc_modify_index=edit.index, modify_time=now or alloc.modify_time
    )
    if desired is not None:
        changed = replace(changed, desired_status=desired[0], desired_description=desired[1])
    edit.put_alloc(alloc, changed)
