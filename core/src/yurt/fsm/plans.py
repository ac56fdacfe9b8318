"""Plans: allocations placed, updated and stopped as proposed by a scheduler and accepted by the plan check.

The plan is normalised: allocations are made here from placements, and share the job of the version that the plan
names. A placement that no longer fits (its job version, group or node is gone) rejects the whole plan; the
scheduler tries again on a newer state. A stop or an update of a deleted or ended allocation is left out: its
intent is fulfilled. An allocation stopped on a down or deleted node is lost. An allocation whose node came back into
contact just before the plan is neither marked unknown nor replaced: the node's return has an evaluation of its own.
A plan whose state lacked the placements of the job's last plan is refused: it would place the job twice.
A batch allocation that has completed since the plan was made is not replaced: its work is done (invariant D4). Nor is
it stopped in favour of another one of its name.
Members of a gang are counted after the plan: those that have ended since it was made are missed by the new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from yurt.fsm.bookkeeping.summary_changes import SUMMARY_FIELDS
from yurt.fsm.csi_volumes import claims_before
from yurt.fsm.edit import Edit
from yurt.fsm.eval_triggers import evaluation_of, mint_of
from yurt.fsm.evals import put_evaluations
from yurt.fsm.host_volumes import PlanWriters, claim_volumes, withdrawn_volume, writer_conflict
from yurt.fsm.jobs import update_deployment
from yurt.fsm.reject import conflict, invalid, stale
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.state.claims import csi_requests, refusal
from yurt.state.finished_work import is_done_before_rival, is_work_done
from yurt.state.host_volumes import host_requests
from yurt.structs import status
from yurt.structs.alloc import (
    AllocatedResources,
    Allocation,
    AllocDeploymentStatus,
    AllocState,
    DesiredTransition,
    IdleState,
)
from yurt.structs.commands import EvalSeed, Rejected
from yurt.structs.commands.packed import unpacked
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.plan import AllocStop, AttributeUpdate, InPlaceUpdate, Placement, Plan
from yurt.structs.predicates import (
    alloc_index,
    is_canary,
    is_client_terminal,
    is_gang_member,
    is_ready,
    is_server_terminal,
)
from yurt.structs.queueing.idle import idle_policy_of, is_same_policy, unmeasured
from yurt.structs.rules import (
    CSI_CLAIM_RULES,
    DEVICE_CHECK_RULES,
    FINISHED_WORK_RULES,
    GANG_GROWTH_RULES,
    GANG_MEMBER_RULES,
    LATE_UPDATE_RULES,
    PLAN_ORDER_RULES,
    RECLAIM_RULES,
    STAND_IN_RULES,
)
from yurt.structs.status import ClientStatus, NotGiven
from yurt.structs.summary import JobSummary
from yurt.structs.volumes.request import source_of

GROUP_OF: Final = attrgetter("job_version", "task_group")
DESIRED: Final = frozenset({status.DESIRED_RUN, *status.SERVER_TERMINAL})
CLIENT: Final = frozenset[object]({None, "", *SUMMARY_FIELDS})
"""The client statuses that a plan may set, and what stands for none."""


def apply_plan(edit: Edit, plan: Plan, *, checked_at: int = 0, writers: PlanWriters | None = None) -> Rejected | None:
    """Apply the accepted part of a plan; its placements, possibly packed, were checked on the state at index
    `checked_at`.

    `writers` is given with a part of a plan, and has those of the parts before; the caller checks `beyond_guarantees`
    and `gang_below_minimum` for the whole.
    """
    is_part, known = writers is not None, {} if writers is None else writers
    try:
        plan = unpacked(plan)
    except Invalid as error:
        return invalid(str(error))
    rejected = _made_without_earlier(edit, plan)
    rejected = rejected or (_changed_since(edit, plan, checked_at) if checked_at else None)
    rejected = rejected or _check(edit, plan, known)
    rejected = rejected or (None if is_part else beyond_guarantees(edit, plan))
    if rejected is not None:
        return rejected
    jobs = {version: _version(edit, plan, version) for version in {one.job_version for one in plan.placements}}
    assert None not in jobs.values(), "a version that is not kept was refused by the check"
    # The deployment first: the allocations below count in its progress, and so does the first placement's deadline.
    _put_deployments(edit, plan)
    plan = _without_returned(edit, plan)
    planned = len(plan.placements) + len(plan.stops)
    plan = _without_finished(edit, plan, jobs)
    # Stops before placements: a volume or a name that a stopped allocation gives up is free for its replacement.
    for stop in (*plan.stops, *plan.preemptions):
        _stop(edit, plan, stop)
    for attribute in plan.attributes:
        _change_attributes(edit, plan, attribute)
    _evaluate_again(edit, plan, is_short=len(plan.placements) + len(plan.stops) < planned)
    for in_place in plan.in_place:
        _move(edit, plan, in_place)
    placed = _placed(edit, plan, jobs)
    assert len(placed) == len(plan.placements), (len(placed), len(plan.placements))
    edit.put_new_allocs(placed)
    if placed and edit.rules_version >= PLAN_ORDER_RULES:
        edit.summaries.note_plan(plan)
    claim_volumes(edit, jobs.values(), placed)
    for placement in plan.placements:
        if placement.previous_allocation:
            _link(edit, placement)
    return None if is_part else gang_below_minimum(edit, plan)


def gang_below_minimum(edit: Edit, plan: Plan) -> Rejected | None:
    """The rejection of an applied plan after which a gang has fewer members than the plan names, or is larger than
    before and below its minimum.

    Members may have ended since the plan was made: those that it places would run without them (invariant B6).
    """
    if not plan.gang_members or edit.rules_version < GANG_MEMBER_RULES:
        return None
    key = plan.namespace, plan.job_id
    job = edit.job(key)
    allocs = edit.tx.rows(Tables.allocs, edit.tx.keys_where(Tables.allocs, "job", key))
    members = Counter(alloc.task_group for alloc in allocs if is_gang_member(alloc, job))
    enlarged = _enlarged_in_part(edit, job, allocs) if edit.rules_version >= GANG_GROWTH_RULES else {}
    for group, named in sorted(plan.gang_members.items()):
        found, least = enlarged.get(group, (members[group], named))
        if found < least:
            text = f"would have {found} of {least} members: others have ended since the plan was made"
            return stale(f'gang "{group}" of job "{plan.job_id}" in namespace "{plan.namespace}" {text}')
    return None


def _enlarged_in_part(edit: Edit, job: Job | None, allocs: Sequence[Allocation]) -> dict[str, tuple[int, int]]:
    """The groups that a plan makes larger without their minimum, with their members and those that must run together by
    the versions that it places.

    A drain moves single members of a gang that goes on with fewer, which makes it no larger. One that has ended before
    the plan is applied no longer moves: its replacement would be one more. Canaries count apart from the others.
    """
    if job is None:
        return {}
    counts = {group.name: group.count for group in job.task_groups}
    before = Counter(map(_gang_of, (a for a in edit.tx.base.allocs_of_job(*job.key) if is_gang_member(a, job))))
    after = Counter(map(_gang_of, (alloc for alloc in allocs if is_gang_member(alloc, job))))
    found: dict[str, tuple[int, int]] = {}
    for new in allocs:
        gang, group = _gang_of(new), new.job.group(new.task_group) if new.job is not None else None
        if new.create_index != edit.index or group is None or after[gang] <= before[gang]:
            continue
        least = min(group.least, counts.get(group.name, 0))
        if after[gang] < least:
            found[group.name] = (after[gang], least)
    return found


def _gang_of(alloc: Allocation) -> tuple[str, bool]:
    return alloc.task_group, is_canary(alloc)


def _without_returned(edit: Edit, plan: Plan) -> Plan:
    """The plan without changes for nodes that were lost and have returned meanwhile."""
    if not plan.attributes:
        return plan
    marked = {one.node_id for one in plan.attributes if one.client_status == status.CLIENT_UNKNOWN}
    nodes = (edit.tx.get(Tables.nodes, node_id) for node_id in marked)
    back = {node.id for node in nodes if node is not None and node.status not in status.NODE_UNRESPONSIVE}
    if not back:
        return plan
    assert back <= marked, (back, "only a node that the plan takes for lost can have returned")
    staying = {one.id for one in plan.attributes if one.client_status == status.CLIENT_UNKNOWN and one.node_id in back}
    return replace(
        plan,
        attributes=tuple(one for one in plan.attributes if one.id not in staying),
        placements=tuple(one for one in plan.placements if one.previous_allocation not in staying),
    )


def _without_finished(edit: Edit, plan: Plan, jobs: Mapping[int, Job | None]) -> Plan:
    """The plan without replacements of batch allocations that have completed since it was made, and without stops of
    those that were to give way to another one.

    They stay as they are: one that was asked to stop now would not count as done. Nothing is preempted for them.
    """
    if edit.rules_version < FINISHED_WORK_RULES:
        return plan
    dropped = {
        each.id: each.previous_allocation
        for each in plan.placements
        if each.previous_allocation
        and (job := jobs[each.job_version]) is not None
        and is_work_done(edit.tx.base, each.previous_allocation, job, rules_version=edit.rules_version)
    }
    finished = {*dropped.values(), *_done_before_rivals(edit, plan)}
    if not finished:
        return plan
    return replace(
        plan,
        placements=tuple(each for each in plan.placements if each.id not in dropped),
        stops=tuple(each for each in plan.stops if each.id not in finished),
        attributes=tuple(each for each in plan.attributes if each.id not in finished),
        preemptions=tuple(each for each in plan.preemptions if each.preempted_by not in dropped),
    )


def _done_before_rivals(edit: Edit, plan: Plan) -> set[str]:
    """The allocations that the plan stops in favour of others of their names and that have completed meanwhile."""
    job = edit.job((plan.namespace, plan.job_id)) if plan.stops else None
    if job is None or job.stop or edit.rules_version < STAND_IN_RULES:
        return set()
    replaced = {each.previous_allocation for each in plan.placements}
    stopped = [each.id for each in plan.stops if each.id not in replaced]
    return {each for each in stopped if is_done_before_rival(edit.tx.base, each, job)}


def beyond_guarantees(edit: Edit, plan: Plan) -> Rejected | None:
    """The rejection of a plan that preempts guaranteed or protected allocations, by the present state.

    Between the plan check and this command a client may have reported the end of an allocation, so that the next one
    of its quota is within the guarantee; or a guarantee may be new.
    """
    if not (plan.guarantees_of and plan.preemptions):
        return None
    is_reclaiming = any(stop.reclaimed_for for stop in plan.preemptions)
    if not (is_reclaiming or len(edit.tx.base.quotas)):
        return None
    from yurt.state.quota_tree import cached_tree, has_guarantees

    # The sums below need the columnar view, which takes long to build: it is built only if they are needed.
    if not (is_reclaiming or has_guarantees(edit.tx.base, plan.guarantees_of)):
        return None
    from yurt.scheduler.capacity.guarantees import guarantee_refusals

    tree = cached_tree(edit.tx.base, plan.guarantees_of)
    refused = guarantee_refusals(edit.tx.base, plan, tree)
    return stale(refused[min(refused)]) if refused else None


def _check(edit: Edit, plan: Plan, writers: PlanWriters) -> Rejected | None:
    ids = [placement.id for placement in plan.placements]
    existing = edit.tx.present(Tables.allocs, ids)
    if existing or "" in ids or len(set(ids)) < len(ids):
        return invalid(f'the plan places allocation "{existing[0] if existing else ""}" that is there already')
    for version, group in sorted(set(map(GROUP_OF, plan.placements))):
        job = _version(edit, plan, version)
        if job is None:
            return conflict(f'job "{plan.job_id}" in namespace "{plan.namespace}" has no version {version}')
        task_group = job.group(group)
        if task_group is None:
            return invalid(f'job "{plan.job_id}" version {version} has no group "{group}"')
        if csi_requests(task_group) or host_requests(task_group):
            withdrawn = withdrawn_volume(edit, plan, job, task_group)
            if withdrawn:
                return stale(withdrawn)
            text = _claimed(edit, plan, job, task_group) or writer_conflict(edit, plan, job, task_group, writers)
            if text:
                return conflict(text)
    node_ids = {placement.node_id for placement in plan.placements}
    present = edit.tx.present(Tables.nodes, node_ids)
    missing = node_ids.difference(present)
    if missing:
        return conflict(f'node "{min(missing)}" does not exist')
    stops = (*plan.stops, *plan.preemptions)
    if not DESIRED.issuperset([stop.desired_status for stop in stops]):
        return invalid("the plan asks for an unknown desired status")
    set_statuses = [*[stop.client_status for stop in stops], *[update.client_status for update in plan.attributes]]
    if not CLIENT.issuperset(set_statuses):
        return invalid("the plan sets an unknown client status")
    return None


def _made_without_earlier(edit: Edit, plan: Plan) -> Rejected | None:
    """The rejection of a plan whose state lacked the placements of an earlier plan of its job.

    It would place the job again, or not stop what that plan placed. The evaluations of a job are attempted one after
    the other, but the state of a follower may lack the plan of the one before.
    """
    if edit.rules_version < PLAN_ORDER_RULES or not plan.snapshot_index:
        return None
    summary: JobSummary | None = edit.tx.get(Tables.job_summaries, (plan.namespace, plan.job_id))
    if summary is None or summary.plan_index <= plan.snapshot_index:
        return None
    # A later attempt of the same evaluation has its token too, and a state of its own.
    made = summary.plan_token, summary.plan_snapshot_index
    if made == (plan.eval_token, plan.snapshot_index):
        return None
    return stale(
        f'the plan for job "{plan.job_id}" in namespace "{plan.namespace}" was made on the state at index '
        f"{plan.snapshot_index}, before allocations were placed at index {summary.plan_index}"
    )


def _changed_since(edit: Edit, plan: Plan, index: int) -> Rejected | None:
    """The rejection of placements and updates whose job, quota or nodes have changed since the plan check.

    A stop, a drain, or a change of eligibility or of a quota may have been acknowledged between the check and this
    command.
    """
    return _quota_changed(edit, plan, index) or _job_or_node_changed(edit, plan, index)


def _quota_changed(edit: Edit, plan: Plan, index: int) -> Rejected | None:
    """The rejection of a plan whose quota changed since the plan check; in-place updates may use more than before."""
    if not (plan.placements or plan.in_place) or edit.quota_of(plan.namespace) is None:
        return None
    if index < max(edit.tx.base.quotas.index, edit.tx.base.namespaces.index):
        return stale(f'the quota of namespace "{plan.namespace}" changed after the plan was checked')
    return None


def _job_or_node_changed(edit: Edit, plan: Plan, index: int) -> Rejected | None:
    if not plan.placements:
        return None
    job = edit.job((plan.namespace, plan.job_id))
    if job is None or job.job_modify_index > index:
        return stale(f'job "{plan.job_id}" in namespace "{plan.namespace}" changed after the plan was checked')
    if edit.tx.base.nodes.index <= index:
        return None
    changed: dict[str, Node] = {}
    for node_id in sorted({placement.node_id for placement in plan.placements}):
        node: Node | None = edit.tx.get(Tables.nodes, node_id)
        if node is None or not is_ready(node):
            return stale(f'node "{node_id}" takes no allocations any more')
        if node.modify_index > index:
            changed[node_id] = node
    return _device_changed(edit, plan, changed) if edit.rules_version >= DEVICE_CHECK_RULES else None


def _device_changed(edit: Edit, plan: Plan, changed: Mapping[str, Node]) -> Rejected | None:
    """The rejection of placements on devices that one of the changed nodes no longer offers to their group, or not in
    these shares."""
    coming: dict[str, list[str]] = {}
    for placement in plan.placements:
        node = changed.get(placement.node_id)
        if node is None or not any(task.devices for task in placement.resources.tasks.values()):
            continue
        # Few plans have devices: what knows them is loaded only with such a plan.
        from yurt.scheduler.devices.unusable import unusable_device
        from yurt.state.usage import usage_of_resources

        job = _version(edit, plan, placement.job_version)
        group = None if job is None else job.group(placement.task_group)
        devices = usage_of_resources(placement.resources, group).devices
        reason = unusable_device(node, devices, group)
        if reason:
            return stale(f'node "{node.id}" changed after the plan was checked: {reason}')
        coming.setdefault(node.id, []).extend(devices)
    return _share_changed(edit, plan, changed, coming) if coming else None


def _share_changed(
    edit: Edit, plan: Plan, changed: Mapping[str, Node], coming: Mapping[str, list[str]]
) -> Rejected | None:
    """The rejection of shares for which one of the changed nodes has not enough any more: less memory, other
    profiles."""
    from yurt.scheduler.devices.overbooking import overbooked
    from yurt.state.usage import is_using, usage_of

    leaving = {stop.id for stop in (*plan.stops, *plan.preemptions)}
    for node_id, devices in sorted(coming.items()):
        allocs = edit.tx.rows(Tables.allocs, edit.tx.keys_where(Tables.allocs, "node", node_id))
        # As in the plan check: what the plan stops is free; earlier stops count until the client ends them.
        staying = [alloc for alloc in allocs if alloc.id not in leaving and is_using(alloc)]
        in_use = {*devices, *(device for alloc in staying for device in usage_of(alloc).devices)}
        reason = overbooked(changed[node_id], in_use, devices)
        if reason:
            return stale(f'node "{node_id}" changed after the plan was checked: {reason}')
    return None


def _claimed(edit: Edit, plan: Plan, job: Job, group: TaskGroup) -> str:
    """The reason why the group can no longer claim one of its CSI volumes; "" when it can."""
    requests = csi_requests(group)
    if not requests:
        return ""
    claims_of = claims_before(edit, plan.namespace)
    indexes = {alloc_index(placement.name) for placement in plan.placements if placement.task_group == group.name}
    for request in requests:
        for source in sorted({source_of(request, index) for index in indexes}):
            volume = edit.tx.get(Tables.csi_volumes, (plan.namespace, source))
            reason = refusal(
                volume,
                request,
                source,
                present_claims=claims_of(source),
                job=job,
                compares_all=edit.rules_version >= CSI_CLAIM_RULES,
            )
            if reason:
                return reason
    return ""


def _version(edit: Edit, plan: Plan, version: int) -> Job | None:
    job: Job | None = edit.tx.get(Tables.job_versions, (plan.namespace, plan.job_id, version))
    return job


def _put_deployments(edit: Edit, plan: Plan) -> None:
    new = plan.deployment
    if new is not None and edit.deployment(new.id) is None:
        edit.put_deployment(
            replace(
                new,
                create_index=edit.index,
                modify_index=edit.index,
                create_time=new.create_time or plan.now,
                modify_time=new.modify_time or plan.now,
            )
        )
    for update in plan.deployment_updates:
        update_deployment(edit, update, now=plan.now)


def _placed(edit: Edit, plan: Plan, jobs: dict[int, Job | None]) -> list[Allocation]:
    """The placements as allocations; consecutive equal resources become one object.

    All are copies of one pattern with the shared fields: that takes a fifth of the time of constructing each.
    """
    shared: AllocatedResources | None = None
    node_of, index = edit.tx.reader(Tables.nodes), edit.index
    pattern = Allocation(
        namespace=plan.namespace,
        eval_id=plan.eval_id,
        job_id=plan.job_id,
        create_index=index,
        modify_index=index,
        alloc_modify_index=index,
        create_time=plan.now,
        modify_time=plan.now,
    )
    allocs: list[Allocation] = []
    for placement in plan.placements:
        if shared is None or (placement.resources is not shared and placement.resources != shared):
            shared = placement.resources
        node = node_of(placement.node_id)
        health = placement.deployment_status
        allocs.append(
            replace(
                pattern,
                id=placement.id,
                name=placement.name,
                node_id=node.id,
                node_name=node.name,
                job=jobs[placement.job_version],
                task_group=placement.task_group,
                allocated_resources=shared,
                metrics=placement.metrics,
                deployment_id=placement.deployment_id,
                deployment_status=None if health is None else replace(health, modify_index=index),
                previous_allocation=placement.previous_allocation,
                reschedule_tracker=placement.reschedule_tracker,
                preempted_allocations=placement.preempted_allocations,
            )
        )
    return allocs


def _link(edit: Edit, placement: Placement) -> None:
    """Link a replaced allocation to its replacement."""
    previous = edit.alloc(placement.previous_allocation) if placement.previous_allocation else None
    if previous is not None:
        edit.put_alloc(previous, replace(previous, next_allocation=placement.id, modify_index=edit.index))


def _stop(edit: Edit, plan: Plan, stop: AllocStop) -> None:
    alloc = edit.alloc(stop.id)
    if alloc is None:
        return
    changes: dict[str, object] = {
        "desired_status": stop.desired_status,
        "desired_description": stop.description or alloc.desired_description,
        "followup_eval_id": stop.followup_eval_id or alloc.followup_eval_id,
        "preempted_by_allocation": stop.preempted_by or alloc.preempted_by_allocation,
    }
    client_status = stop.client_status or _silent(edit, alloc)
    if client_status and not is_client_terminal(alloc):
        client_state = AllocState(value=client_status, time=plan.now)
        changes |= {"client_status": client_status, "alloc_states": (*alloc.alloc_states, client_state)}
    edit.put_alloc(alloc, _served(edit, plan, alloc, changes))


def _silent(edit: Edit, alloc: Allocation) -> ClientStatus | NotGiven:
    """The client status of an allocation stopped on a down or deleted node, whose client cannot report its end."""
    node = edit.tx.get(Tables.nodes, alloc.node_id)
    return status.CLIENT_LOST if node is None or node.status == status.NODE_DOWN else ""


def _evaluate_again(edit: Edit, plan: Plan, *, is_short: bool) -> None:
    """Evaluate the job again when an allocation that the plan updates in place has ended since the plan was made, or
    when replacements or stops were left out (`is_short`).

    The first has ended in its old version and the plan counts it as one of the new version: a batch or system job would
    lack an allocation that nothing places.
    """
    is_late = edit.rules_version >= LATE_UPDATE_RULES and any(_has_ended(edit.alloc(u.id)) for u in plan.in_place)
    job = edit.job((plan.namespace, plan.job_id)) if is_late or is_short else None
    if job is None or job.stop:
        return
    # A plan may be applied in several parts, each at an index of its own.
    mint = mint_of(EvalSeed(seed=f"{plan.eval_id}/{edit.index}", now=plan.now))
    rejected = put_evaluations(edit, (evaluation_of(job, status.TRIGGER_ALLOC_STOP, mint),))
    assert rejected is None, rejected


def _has_ended(alloc: Allocation | None) -> bool:
    """Whether an allocation has ended by itself; who stops one evaluates its job."""
    return alloc is None or (is_client_terminal(alloc) and not is_server_terminal(alloc))


def _move(edit: Edit, plan: Plan, update: InPlaceUpdate) -> None:
    alloc = edit.alloc(update.id)
    job = _version(edit, plan, update.job_version)
    if alloc is None or job is None or is_server_terminal(alloc) or is_client_terminal(alloc):
        return
    health = update.deployment_status
    if health is None and update.deployment_id in ("", alloc.deployment_id):
        health = alloc.deployment_status
    changes: dict[str, object] = {
        "job": job,
        "eval_id": plan.eval_id,
        "allocated_resources": update.resources or alloc.allocated_resources,
        "deployment_id": update.deployment_id or alloc.deployment_id,
        "deployment_status": health,
        "metrics": update.metrics or alloc.metrics,
    }
    moved = _served(edit, plan, alloc, changes)
    if edit.rules_version >= RECLAIM_RULES and not is_same_policy(idle_policy_of(alloc), idle_policy_of(moved)):
        # A measurement under another policy ends no allocation under this one, nor does a report that is on its way.
        idle = replace(alloc.idle or IdleState(), policy_version=job.version)
        moved = replace(moved, idle=unmeasured(idle, edit.index))
    edit.put_alloc(alloc, moved)


def _change_attributes(edit: Edit, plan: Plan, update: AttributeUpdate) -> None:
    alloc = edit.alloc(update.id)
    if alloc is None:
        return
    changes: dict[str, object] = {}
    if update.followup_eval_id is not None:
        changes["followup_eval_id"] = update.followup_eval_id
    if update.client_status is not None and not is_client_terminal(alloc):
        changes["client_status"] = update.client_status
    if update.client_description is not None:
        changes["client_description"] = update.client_description
    if update.reschedule_tracker is not None:
        changes["reschedule_tracker"] = update.reschedule_tracker
    if update.desired_transition_clear:
        changes["desired_transition"] = DesiredTransition()
    if update.append_state is not None:
        value, time = update.append_state
        changes["alloc_states"] = (*alloc.alloc_states, AllocState(value=value, time=time))
    if update.canary is not None:
        health = alloc.deployment_status or AllocDeploymentStatus()
        changes["deployment_status"] = replace(health, canary=update.canary, modify_index=edit.index)
    if update.canary is None and update.append_state is None:
        edit.put_alloc(alloc, replace(alloc, **changes, modify_index=edit.index, modify_time=plan.now))
    else:
        edit.put_alloc(alloc, _served(edit, plan, alloc, changes))


def _served(edit: Edit, plan: Plan, alloc: Allocation, changes: dict[str, object]) -> Allocation:
    """A copy with a new `alloc_modify_index`, so that the client fetches it."""
    return replace(
        alloc,
        **changes,
        modify_index=edit.index,
        alloc_modify_index=edit.index,
        modify_time=plan.now or alloc.modify_time,
    )
