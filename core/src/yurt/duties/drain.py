"""Drains nodes: their allocations leave in an order that keeps jobs running.

Service groups move at the pace of their migrate block; batch and sysbatch allocations may run until the deadline;
system allocations and CSI plugins go last, unless they are ignored. At the deadline every remaining allocation is
marked for migration. A node is drained when no allocation that counts runs on it: an allocation counts until its client
reports its end or the servers mark it lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from yurt.fsm.eval_triggers import Mint, evaluations_of
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.commands import AnyCommand, SetDesiredTransitions, SetNodeDrain
from yurt.structs.job import Job
from yurt.structs.node import DrainSpec, DrainStrategy, Node, NodeEvent
from yurt.structs.predicates import holds_up_drain, is_terminal
from yurt.structs.status import Trigger

SUBSYSTEM: Final = "Drain"
KINDS: Final = {status.JOB_BATCH: "batch", status.JOB_SYSBATCH: "batch", status.JOB_SYSTEM: "system"}


class Left(msgspec.Struct, frozen=True):
    """The remaining allocations on a draining node."""

    service: tuple[Allocation, ...]
    batch: tuple[Allocation, ...]
    system: tuple[Allocation, ...]

    @property
    def all(self) -> tuple[Allocation, ...]:
        """All remaining allocations."""
        return (*self.service, *self.batch, *self.system)


def drain_strategy(spec: DrainSpec, current: DrainStrategy | None, *, now: UnixNano) -> DrainStrategy:
    """The requested drain; a draining node keeps its start time."""
    started = current.started_at if current is not None else now
    if spec.deadline > 0:
        deadline = now + spec.deadline
    else:
        deadline = now if spec.deadline < 0 else 0
    return DrainStrategy(drain_spec=spec, force_deadline=deadline, started_at=started)


def drain(state: Snapshot, node: Node, mint: Mint) -> AnyCommand | None:
    """The command that the node's drain requires now, or None."""
    strategy = node.drain_strategy
    if strategy is None:
        return None
    left = remaining_allocs(state, node, strategy.drain_spec)
    is_forced = 0 < strategy.force_deadline <= mint.now
    if not left.all:
        return _finished(node, mint.now, is_forced=is_forced)
    if is_forced:
        return transition(state, _unmarked(left.all), mint)
    leaving = [alloc for group in by_group(left.service) for alloc in movable(state, group)]
    # System jobs last: they may serve the others of the node, logs and networks for example.
    if not left.service and not left.batch:
        leaving.extend(_unmarked(left.system))
    return transition(state, leaving, mint)


def remaining_allocs(state: Snapshot, node: Node, spec: DrainSpec) -> Left:
    """The allocations that must still leave the node, by kind."""
    kinds: dict[str, list[Allocation]] = {"service": [], "batch": [], "system": []}
    for alloc in state.allocs_of_node(node.id):
        if alloc.job is None or not holds_up_drain(alloc, spec):
            continue
        kinds["system" if _is_plugin(alloc) else KINDS.get(alloc.job.type, "service")].append(alloc)
    left = Left(tuple(kinds["service"]), tuple(kinds["batch"]), tuple(kinds["system"]))
    assert len(left.all) == sum(map(len, kinds.values())), "each allocation is of one kind"
    return left


def _is_plugin(alloc: Allocation) -> bool:
    """Whether other allocations need this plugin to unmount CSI volumes: it is drained last, whatever its job type."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return group is not None and any(task.csi_plugin_config is not None for task in group.tasks)


def by_group(allocs: Iterable[Allocation]) -> list[list[Allocation]]:
    """The allocations of each task group."""
    groups: dict[tuple[str, str, str], list[Allocation]] = {}
    for alloc in allocs:
        groups.setdefault((alloc.namespace, alloc.job_id, alloc.task_group), []).append(alloc)
    return list(groups.values())


def movable(state: Snapshot, group: list[Allocation], *, at_least: int = 0) -> list[Allocation]:
    """The allocations of one group that may stop now while enough healthy ones remain; `at_least`: the number without a
    replacement that a smaller `max_parallel` does not forbid."""
    sample = group[0]
    job = state.jobs.get((sample.namespace, sample.job_id))
    spec = job.group(sample.task_group) if job is not None else None
    if job is None or job.stop or spec is None:
        return []
    at_once = max(at_least, spec.migrate.max_parallel if spec.migrate is not None else 1)
    siblings = state.allocs.each_where("job", (sample.namespace, sample.job_id))
    healthy = sum(1 for alloc in siblings if alloc.task_group == sample.task_group and counts_as_healthy(alloc))
    budget = healthy - (spec.count - at_once)
    found = _unmarked(group)[: max(0, budget)]
    assert len(found) <= max(0, budget), (len(found), budget)
    assert not found or healthy - len(found) >= spec.count - at_once, "a drain leaves count - max_parallel healthy"
    return found


def counts_as_healthy(alloc: Allocation) -> bool:
    """Whether an allocation is reachable and healthy; without health checks, whether it runs."""
    if is_terminal(alloc) or alloc.desired_transition.migrate or alloc.client_status == status.CLIENT_UNKNOWN:
        return False
    if alloc.deployment_status is not None and alloc.deployment_status.healthy is not None:
        return True
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    is_judged = bool(alloc.deployment_id) or (group is not None and group.migrate is not None)
    return not is_judged and alloc.client_status == status.CLIENT_RUNNING


def _unmarked(allocs: Iterable[Allocation]) -> list[Allocation]:
    return [
        alloc for alloc in allocs if not alloc.desired_transition.migrate and alloc.desired_status == status.DESIRED_RUN
    ]


def transition(
    state: Snapshot,
    allocs: Iterable[Allocation],
    mint: Mint,
    *,
    trigger: Trigger = status.TRIGGER_NODE_DRAIN,
    replaces_batch: bool = False,
) -> SetDesiredTransitions | None:
    """The command that marks allocations for migration, with evaluations of their jobs; None for none. A drain does not
    replace batch allocations."""
    transitions: dict[str, DesiredTransition] = {}
    jobs: list[Job] = []
    for alloc in allocs:
        job = state.jobs.get((alloc.namespace, alloc.job_id)) or alloc.job
        if job is None:
            continue
        stays_away = job.type in (status.JOB_BATCH, status.JOB_SYSBATCH) and not replaces_batch
        transitions[alloc.id] = DesiredTransition(migrate=True, migrate_disable_placement=stays_away)
        jobs.append(job)
    if not transitions:
        return None
    evaluations = evaluations_of(jobs, trigger, mint)
    return SetDesiredTransitions(transitions=transitions, evaluations=evaluations, now=mint.now)


def _finished(node: Node, now: UnixNano, *, is_forced: bool) -> SetNodeDrain:
    details = {"deadline_reached": "true"} if is_forced else {}
    last = node.last_drain
    return SetNodeDrain(
        node_id=node.id,
        strategy=None,
        last_drain=replace(last, status=status.DRAIN_COMPLETE, updated_at=now) if last is not None else None,
        event=NodeEvent(message="Node drain complete", subsystem=SUBSYSTEM, details=details, timestamp=now),
    )
