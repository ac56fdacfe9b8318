"""Evaluations triggered by a change of a job, or of a node on which jobs run.

`apply` makes those of nodes itself: a job that was registered or placed a moment before the change of its node is in
the state at the command's position, and in no older one. Their ids follow from the seed that the command carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import count, takewhile
from typing import Final

import msgspec

from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import EvalSeed
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node, without_device_notes
from yurt.structs.predicates import eval_type, is_client_terminal, is_for_node
from yurt.structs.status import Trigger

SYSTEM_TYPES = (status.JOB_SYSTEM, status.JOB_SYSBATCH)


class Mint(msgspec.Struct, frozen=True):
    """A source of new evaluations: the time and new ids."""

    now: UnixNano
    new_id: Callable[[], str]

    def seed(self) -> EvalSeed:
        """The seed in a command from which `apply` creates evaluations."""
        return EvalSeed(seed=self.new_id(), now=self.now)


def mint_of(seed: EvalSeed) -> Mint:
    """A mint with ids derived from a seed: the same on every replica."""
    numbers = count()

    def new_id() -> str:
        text = blake2b(f"{seed.seed}/{next(numbers)}".encode(), digest_size=16, person=b"evaluation").hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return Mint(seed.now, new_id)


def triggered_ids(state: Snapshot, seed: EvalSeed) -> tuple[str, ...]:
    """The ids of the evaluations created by a command with this seed, read from the state right after it."""
    mint = mint_of(seed)
    return tuple(takewhile(lambda eval_id: eval_id in state.evals, iter(mint.new_id, "")))


def evaluation_of(job: Job, trigger: Trigger, mint: Mint, *, priority: int = 0) -> Evaluation:
    """A pending evaluation of the job; `priority` 0 means the job's."""
    return Evaluation(
        id=mint.new_id(),
        namespace=job.namespace,
        priority=priority or job.priority,
        type=eval_type(job),
        triggered_by=trigger,
        job_id=job.id,
        job_modify_index=job.modify_index,
        status=status.EVAL_PENDING,
        create_time=mint.now,
        modify_time=mint.now,
    )


def requested_evaluation(key: tuple[str, str], trigger: Trigger, mint: Mint, *, priority: int = 0) -> Evaluation:
    """A pending evaluation of a job; `apply` sets its type and, if it is 0, its priority."""
    namespace, job_id = key
    return Evaluation(
        id=mint.new_id(),
        namespace=namespace,
        priority=priority,
        triggered_by=trigger,
        job_id=job_id,
        status=status.EVAL_PENDING,
        create_time=mint.now,
        modify_time=mint.now,
    )


def evaluations_of(jobs: Iterable[Job], trigger: Trigger, mint: Mint) -> tuple[Evaluation, ...]:
    """One pending evaluation per job, in a fixed order."""
    unique = {job.key: job for job in jobs}
    return tuple(evaluation_of(unique[key], trigger, mint) for key in sorted(unique))


def evals_for_node(state: Snapshot, node: Node, mint: Mint, *, trigger: Trigger) -> tuple[Evaluation, ...]:
    """One evaluation per job with allocations on the node, and one per system job that applies to the node."""
    jobs: dict[tuple[str, str], Job] = {}
    for alloc in state.allocs_of_node(node.id):
        if is_client_terminal(alloc):
            continue
        job = state.jobs.get((alloc.namespace, alloc.job_id)) or alloc.job
        if job is not None:
            jobs[job.key] = job
    for job in system_jobs(state):
        if is_for_node(job, node):
            jobs[job.key] = job
    index = node.modify_index
    made = evaluations_of(jobs.values(), trigger, mint)
    assert len({each.id for each in made}) == len(made) == len(jobs), "one evaluation, with an id of its own, per job"
    return tuple(replace(evaluation, node_id=node.id, node_modify_index=index) for evaluation in made)


def system_jobs(state: Snapshot) -> tuple[Job, ...]:
    """Jobs that run on every feasible node, except stopped ones and templates."""
    jobs = state.jobs.where("system", "system")
    return tuple(job for job in jobs if not job.stop and not job.is_template)


def transition_needs_evals(before: str, after: str) -> bool:
    """Whether jobs must be evaluated after a change of node status."""
    if before == after:
        return False
    if after in (status.NODE_DOWN, status.NODE_DISCONNECTED) or before == status.NODE_DISCONNECTED:
        return True
    return after == status.NODE_READY and before in (status.NODE_INIT, status.NODE_DOWN)


def registration_needs_evals(before: Node | None, after: Node, *, has_device_notes: bool = False) -> bool:
    """Whether a changed registration may affect feasibility; a new node cannot: it is not ready yet.

    `has_device_notes`: ignore changed reasons for the state of a device (from `DEVICE_RULES` on).
    """
    if before is None:
        return False
    if has_device_notes and before.node_resources != after.node_resources:
        before, after = (
            replace(node, node_resources=without_device_notes(node.node_resources)) for node in (before, after)
        )
    return any(getattr(before, name) != getattr(after, name) for name in _PLACEMENT_FIELDS) or (
        _driver_health(before) != _driver_health(after)
    )


_PLACEMENT_FIELDS: Final = (
    "attributes", "meta", "host_volumes", "node_class", "datacenter", "name", "node_pool", "node_resources",
    "reserved_resources",
)  # fmt: skip


def _driver_health(node: Node) -> dict[str, tuple[bool, bool]]:
    return {name: (info.detected, info.healthy) for name, info in node.drivers.items()}
