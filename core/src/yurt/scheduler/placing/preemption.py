"""Preemption: chooses allocations to stop for a job of higher priority (docs/explanation/placing.md; invariant C5).

Among victims of equal priority that are all of batch jobs, those go whose end loses the least work: the run time since
their last checkpoint, times what they hold. With a service among them, the one closest to the shortage goes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

from yurt.scheduler.capacity.ask import GroupAsk, NodeGrant
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.placing.terms.term import TermKind
from yurt.sdk.value import NANOSECONDS
from yurt.state.columns import ALLOCS, CPU, DISK, MEMORY
from yurt.state.usage import Usage, is_using
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import AllocStop
from yurt.structs.queueing.requeue import lost_work
from yurt.structs.status import DESIRED_EVICT, JOB_BATCH, JOB_SERVICE, JOB_SYSBATCH, JOB_SYSTEM, SERVER_TERMINAL

PREEMPTION: Final = TermKind("preemption", compares_nodes=False)
PRIORITY_DELTA = 10
PARALLEL_PENALTY = 50.0
AMOUNTS = ALLOCS + 1
CARD_MHZ: Final = 32_000
"""The weight of holding a device, in MHz of CPU."""
CARD_HOUR: Final = 3600 * CARD_MHZ
"""The amount of lost work that halves a node's preemption score, in MHz x seconds."""


def is_allowed(view: ClusterView, job: Job) -> bool:
    """Whether the scheduler configuration permits preemption for the job type."""
    config = view.snapshot.scheduler_config.preemption_config
    return {
        JOB_SYSTEM: config.system_scheduler_enabled,
        JOB_SYSBATCH: config.sys_batch_scheduler_enabled,
        JOB_BATCH: config.batch_scheduler_enabled,
        JOB_SERVICE: config.service_scheduler_enabled,
    }.get(job.type, False)


def lost_work_of(view: ClusterView, victims: Collection[Allocation]) -> dict[str, int]:
    """The work lost if each allocation ended now, in MHz x seconds, by id; zeros if any is not of a batch job."""
    if not all(alloc.job is not None and alloc.job.type in (JOB_BATCH, JOB_SYSBATCH) for alloc in victims):
        return {alloc.id: 0 for alloc in victims}
    return {
        alloc.id: lost_work(alloc, view.now) // NANOSECONDS * (usage.cpu + len(usage.devices) * CARD_MHZ)
        for alloc in victims
        for usage in (view.usage_of(alloc),)
    }


def preemption_score(victims: Iterable[Allocation], lost: int = 0) -> float:
    """A score near 1 for few victims of low priority that lose little work (MHz x seconds), near 0 for the opposite."""
    return _priority_score(victims) * (CARD_HOUR / (CARD_HOUR + lost))


def _priority_score(victims: Iterable[Allocation]) -> float:
    priorities = [alloc.job.priority for alloc in victims if alloc.job is not None]
    if not priorities or max(priorities) <= 0:
        return 1.0
    net = max(priorities) + sum(priorities) / max(priorities)
    return 1.0 / (1.0 + math.exp(min(700.0, 0.0048 * (net - 2048.0))))


def evictions(victims: Iterable[Allocation], by: str, reclaimed_for: Mapping[str, str]) -> list[AllocStop]:
    """The stops of the allocations preempted for the allocation `by`; those reclaimed name their quota."""
    return [
        AllocStop(
            id=victim.id,
            node_id=victim.node_id,
            desired_status=DESIRED_EVICT,
            description=_description(by, reclaimed_for.get(victim.id, "")),
            preempted_by=by,
            reclaimed_for=reclaimed_for.get(victim.id, ""),
        )
        for victim in victims
    ]


def _description(by: str, quota: str) -> str:
    return (
        f'Reclaimed for the guarantee of quota "{quota}" by alloc ID {by}' if quota else f"Preempted by alloc ID {by}"
    )


def preempt(
    view: ClusterView, job: Job, group: TaskGroup, ask: GroupAsk, *, row: int, salt: int
) -> tuple[NodeGrant, tuple[Allocation, ...]] | None:
    """Preempt the victims of lowest priority and closest fit that free enough capacity; the view releases them."""
    candidates = victims_of(view, job, row)
    if not candidates:
        return None
    guarantees = view.guarantees
    chosen: list[Allocation] = []
    lost = lost_work_of(view, candidates)
    whole = _need(view, ask, row)
    while True:
        grant = fit(view, ask, row, salt)
        if grant is not None:
            break
        if guarantees is not None:
            candidates = [alloc for alloc in candidates if guarantees.keeps_guarantees(alloc)]
        victim = _next(view, ask, row, candidates, chosen=chosen, lost=lost)
        if victim is None:
            for alloc in chosen:
                _give_back(view, alloc)
            return None
        candidates.remove(victim)
        chosen.append(victim)
        _end(view, victim)
    # The choice is greedy, so an early victim may become needless after later ones: each is spared if the others are
    # sufficient, first the one that loses the most work, then the one that helps least.
    for alloc in sorted(chosen, key=lambda a: (-lost[a.id], -_distance(whole, view.usage_of(a)), a.id)):
        _give_back(view, alloc)
        again = fit(view, ask, row, salt)
        if again is None:
            _end(view, alloc)
        else:
            grant = again
            chosen.remove(alloc)
    if guarantees is not None:
        # The caller counts the ends when it accepts the choice.
        for alloc in chosen:
            guarantees.count_end(alloc, -1)
    assert all(view.is_released(alloc.id) for alloc in chosen), "the capacity of the victims counts as free"
    assert all(alloc.job is not None and alloc.job.priority < job.priority for alloc in chosen), (job.key, "C5")
    return grant, tuple(chosen)


def _end(view: ClusterView, alloc: Allocation) -> None:
    view.release(alloc)
    if view.guarantees is not None:
        view.guarantees.count_end(alloc)


def _give_back(view: ClusterView, alloc: Allocation) -> None:
    view.restore(alloc)
    if view.guarantees is not None:
        view.guarantees.count_end(alloc, -1)


def situation(view: ClusterView, job: Job, ask: GroupAsk, row: int) -> Hashable | None:
    """The inputs of a row's preemption score: equal inputs give equal scores. None: evaluate the node itself."""
    if ask.is_exclusive:
        return None
    candidates = sorted(victims_of(view, job, row), key=lambda alloc: alloc.id)
    guarantees = view.guarantees
    if guarantees is not None and any(guarantees.protects(alloc.namespace) for alloc in candidates):
        return None
    jobs: dict[tuple[str, str], int] = {}
    inputs = []
    lost = lost_work_of(view, candidates)
    for alloc in candidates:
        assert alloc.job is not None
        number = jobs.setdefault((alloc.namespace, alloc.job_id), len(jobs))
        inputs.append((number, alloc.job.priority, _parallel(alloc), view.usage_of(alloc), lost[alloc.id]))
    return (tuple(view.used_on(row)), tuple(view.offered[row, :AMOUNTS].tolist()), tuple(inputs))


def fit(view: ClusterView, ask: GroupAsk, row: int, salt: int) -> NodeGrant | None:
    """The resources that a row grants for a request; None if it does not fit."""
    if view.exhausted(row, ask.plain.usage):
        return None
    grant = ask.grant(view.node(row), view.in_use(row), salt=salt)
    if isinstance(grant, str) or view.exhausted(row, grant.usage):
        return None
    return grant


def victims_of(view: ClusterView, job: Job, row: int) -> list[Allocation]:
    """The preemptible allocations on a node: those of other jobs with a priority lower by 10 or more."""
    return [
        alloc
        for alloc in view.snapshot.allocs_of_node(view.rows.ids[row])
        if alloc.job is not None
        and alloc.job.priority <= job.priority - PRIORITY_DELTA
        and (alloc.namespace, alloc.job_id) != job.key
        and is_using(alloc)
        and alloc.desired_status not in SERVER_TERMINAL
        and not view.is_released(alloc.id)
    ]


def _next(
    view: ClusterView,
    ask: GroupAsk,
    row: int,
    candidates: Iterable[Allocation],
    *,
    chosen: list[Allocation],
    lost: Mapping[str, int],
) -> Allocation | None:
    """The next victim: the lowest priority first; of equals the one that loses the least work, then the closest to the
    shortage."""
    need = _need(view, ask, row)

    def rank(alloc: Allocation) -> tuple[int, int, int, float, str]:
        assert alloc.job is not None
        usage = view.usage_of(alloc)
        is_useless = not _is_of_use(need, usage)
        distance = _distance(need, usage) + _penalty(alloc, chosen)
        return (int(is_useless), alloc.job.priority, lost[alloc.id], distance, alloc.id)

    return min(candidates, key=rank, default=None)


def is_of_use(view: ClusterView, ask: GroupAsk, row: int, alloc: Allocation) -> bool:
    """Whether the end of an allocation frees a lacking resource of a row."""
    return _is_of_use(_need(view, ask, row), view.usage_of(alloc))


def _is_of_use(need: tuple[int, int, int], usage: Usage) -> bool:
    return _helps(need, usage) if any(need) else usage.is_exclusive


def _helps(need: tuple[int, int, int], usage: Usage) -> bool:
    return any(
        needed > 0 and freed > 0 for needed, freed in zip(need, (usage.cpu, usage.memory, usage.disk), strict=True)
    )


def _need(view: ClusterView, ask: GroupAsk, row: int) -> tuple[int, int, int]:
    """The remaining shortage in each dimension."""
    used, offered, required = view.used_on(row), view.offered[row], ask.plain.usage
    return (
        max(0, int(used[CPU] + required.cpu - offered[CPU])),
        max(0, int(used[MEMORY] + required.memory - offered[MEMORY])),
        max(0, int(used[DISK] + required.disk - offered[DISK])),
    )


def _distance(need: tuple[int, int, int], usage: Usage) -> float:
    parts = (
        (needed - freed) / needed if needed else 0.0
        for needed, freed in zip(need, (usage.cpu, usage.memory, usage.disk), strict=True)
    )
    return math.sqrt(sum(part * part for part in parts))


def _penalty(alloc: Allocation, chosen: list[Allocation]) -> float:
    """The penalty for preempting more of one job than its `migrate.max_parallel`."""
    parallel = _parallel(alloc)
    preempted = sum(1 for a in chosen if (a.namespace, a.job_id) == (alloc.namespace, alloc.job_id))
    return PARALLEL_PENALTY * (preempted + 1 - parallel) if parallel > 0 and preempted >= parallel else 0.0


def _parallel(alloc: Allocation) -> int:
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return group.migrate.max_parallel if group is not None and group.migrate is not None else 0
