"""Simulates a changed cluster: nodes lost or added, quotas changed, jobs submitted.

The changes are laid over a copy of the state. Then everything that they concern, and everything that waits, is
scheduled by the real scheduler on that state, jobs of queued pools in the order of their queue, until nothing more is
placed. What runs goes on running: time does not pass, so the answer is that of the next moment; when waiting jobs would
start say the forecasts of their queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from yurt.fsm import apply
from yurt.queue.waiting_job import JobKey
from yurt.scheduler.attempts import Attempt, attempt, lay_over
from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano, replace
from yurt.server.queueing.gate import QueueGate
from yurt.server.queueing.report import forecasts
from yurt.state import Snapshot, Tables
from yurt.state.usage import is_using
from yurt.structs import status
from yurt.structs.commands import AnyCommand, ApplyPlan, Rejected, UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.predicates import eval_type, is_server_terminal
from yurt.structs.quota import QuotaSpec
from yurt.structs.rules import RULES_VERSION
from yurt.structs.status import Trigger

ROUNDS_MAX: Final = 100_000
"""Evaluations after which a simulation is aborted: each job is evaluated a few times at most."""
SEED: Final = 1
NODES_MAX: Final = 10_000
_PER_NODE_JOBS: Final = (status.JOB_SYSTEM, status.JOB_SYSBATCH)


class Scenario(NamedTuple):
    """The assumed changes."""

    lost: tuple[str, ...] = ()
    """Ids of nodes that are down."""
    added: tuple[tuple[str, int], ...] = ()
    """The number of additional nodes like this one."""
    jobs: tuple[Job, ...] = ()
    quotas: tuple[QuotaSpec, ...] = ()


class JobOutlook(NamedTuple):
    """A job before and after."""

    key: JobKey
    runs_before: int
    runs: int
    waits_before: int
    waits: int
    preempted: int
    """Allocations that others would preempt."""
    lost: int
    """Allocations on lost nodes."""
    is_submitted: bool
    reason: str
    """The reason why some of it waits."""
    expected_start: int
    """Unix nanoseconds; 0: unknown."""

    @property
    def is_worse(self) -> bool:
        """Whether it runs less than before, is interrupted, or was submitted and waits."""
        return bool(self.preempted or self.runs < self.runs_before or (self.is_submitted and self.waits))


def what_if(state: Snapshot, scenario: Scenario, *, now: UnixNano, region: str) -> list[JobOutlook]:
    """The jobs that would change, were submitted, or wait; raises Invalid for a node that does not exist."""
    simulation = _Simulation(state, now=now, region=region)
    simulation.lay(scenario)
    simulation.run()
    return simulation.outlook(state, scenario)


class _Simulation:
    """A state on which only the scheduler acts."""

    def __init__(self, state: Snapshot, *, now: UnixNano, region: str) -> None:
        self.state = state
        self._now = now
        self._limits = QuotaLimits(region)
        self._gate = QueueGate(region)
        self._waiting: list[Evaluation] = []
        self._preempted: Counter[JobKey] = Counter()
        self._lost: Counter[JobKey] = Counter()
        self._reasons: dict[JobKey, str] = {}
        self._number = 0

    def lay(self, scenario: Scenario) -> None:
        """Apply the changes to the state, and find the evaluations that they trigger."""
        concerned: dict[JobKey, Trigger] = {}
        for name in (status.EVAL_BLOCKED, status.EVAL_PENDING):
            for waiting in self.state.evals.where("status", name):
                concerned[(waiting.namespace, waiting.job_id)] = status.TRIGGER_QUEUED_ALLOCS
        self._lay_nodes(scenario)
        for alloc in self.state.allocs.values():
            if alloc.node_id in scenario.lost and is_using(alloc) and not is_server_terminal(alloc):
                key = (alloc.namespace, alloc.job_id)
                self._lost[key] += 1
                concerned[key] = status.TRIGGER_NODE_UPDATE
        for job in scenario.jobs:
            self.state, _ = lay_over(self.state, job, now=self._now, seed=SEED)
            concerned[job.key] = status.TRIGGER_JOB_REGISTER
        # New evaluations replace those that wait, whose snapshots are of the present state.
        edit = self.state.edit(self.state.index + 1)
        for name in (status.EVAL_BLOCKED, status.EVAL_PENDING):
            for old in self.state.evals.where("status", name):
                edit.delete(Tables.evals, old.id)
        for key, trigger in sorted(concerned.items()):
            made = self._evaluation(key, trigger)
            if made is not None:
                edit.put(Tables.evals, made.id, made)
                self._waiting.append(made)
        self.state = edit.commit()

    def _lay_nodes(self, scenario: Scenario) -> None:
        edit = self.state.edit(self.state.index + 1)
        for node_id in scenario.lost:
            node = self.state.nodes.get(node_id)
            if node is None:
                raise Invalid(f'node "{node_id}" does not exist, so it cannot be lost')
            edit.put(Tables.nodes, node_id, replace(node, status=status.NODE_DOWN))
        number = 0
        for node_id, count in scenario.added:
            like = self.state.nodes.get(node_id)
            if like is None:
                raise Invalid(f'node "{node_id}" does not exist, so no more like it can be added')
            if not 0 < count <= NODES_MAX:
                raise Invalid(f"{count} nodes cannot be added; 1 to {NODES_MAX} can")
            for _ in range(count):
                number += 1
                made = replace(
                    like,
                    id=f"ffffffff-0000-4000-8000-{number:012x}",
                    name=f"{like.name}-what-if-{number}",
                    status=status.NODE_READY,
                    scheduling_eligibility=status.ELIGIBLE,
                    drain_strategy=None,
                )
                edit.put(Tables.nodes, made.id, made)
        for spec in scenario.quotas:
            edit.put(Tables.quotas, spec.name, replace(spec, modify_index=self.state.index + 1))
        self.state = edit.commit()

    def run(self) -> None:
        """Schedule until nothing more is placed."""
        direct = [each for each in self._waiting if not self._gate.takes(self.state, each)]
        direct.sort(key=lambda each: (each.type not in _PER_NODE_JOBS, -each.priority, each.job_modify_index, each.id))
        self._waiting = []
        for _ in range(ROUNDS_MAX):
            if direct:
                direct[:0] = self._attempt(direct.pop(0))
                continue
            direct = self._gate.look(self.state, self._now)
            if not direct:
                return
        raise Invalid(f"the cluster did not settle within {ROUNDS_MAX} evaluations")

    def _attempt(self, evaluation: Evaluation) -> list[Evaluation]:
        """Attempt an evaluation and apply its plan; the evaluations of jobs that it preempted."""
        made = attempt(self.state, evaluation, now=self._now, seed=SEED, limits=self._limits)
        if not made.plan.is_empty:
            self._apply(ApplyPlan(plan=made.plan))
        self._end(evaluation, made)
        victims: list[JobKey] = []
        for stop in made.plan.preemptions:
            alloc = self.state.allocs.get(stop.id)
            if alloc is not None:
                self._preempted[(alloc.namespace, alloc.job_id)] += 1
                victims.append((alloc.namespace, alloc.job_id))
        again = (self._evaluation(key, status.TRIGGER_PREEMPTION) for key in dict.fromkeys(victims))
        return [each for each in again if each is not None]

    def _end(self, evaluation: Evaluation, made: Attempt) -> None:
        """Note how an evaluation ended, in the state and at the gate."""
        key = (evaluation.namespace, evaluation.job_id)
        ended = made.outcome.evaluation
        self._apply(UpsertEvaluations(evaluations=(ended, *made.outcome.created)))
        self._reasons[key] = _reason(ended)
        self._gate.forget(ended)
        self._gate.done(ended.id)
        for other in made.outcome.created:
            if other.status == status.EVAL_BLOCKED:
                self._gate.note_blocked(self.state, other)

    def _apply(self, command: AnyCommand) -> None:
        step = apply(self.state, replace(command, rules_version=RULES_VERSION), index=self.state.index + 1)
        if isinstance(step.result, Rejected):
            raise Invalid(f"the scheduler's plan does not fit the state: {step.result.message}")
        self.state = step.state
        self._gate.follow(step.changes)

    def _evaluation(self, key: JobKey, trigger: Trigger) -> Evaluation | None:
        job = self.state.jobs.get(key)
        if job is None or job.stop or job.is_template:
            return None
        self._number += 1
        return Evaluation(
            id=f"eeeeeeee-0000-4000-8000-{self._number:012x}",
            namespace=job.namespace,
            priority=job.priority,
            type=eval_type(job),
            triggered_by=trigger,
            job_id=job.id,
            job_modify_index=job.job_modify_index,
            status=status.EVAL_PENDING,
            create_time=self._now,
            modify_time=self._now,
        )

    def outlook(self, before: Snapshot, scenario: Scenario) -> list[JobOutlook]:
        """The jobs that differ, were submitted, or wait."""
        ran, runs = _running(before), _running(self.state)
        submitted = {job.key for job in scenario.jobs}
        starts = self._starts()
        found: list[JobOutlook] = []
        for key, job in sorted(self.state.jobs.items()):
            waits = _missing(self.state, job)
            one = JobOutlook(
                key=key,
                runs_before=ran[key],
                runs=runs[key],
                waits_before=_missing(before, before.jobs[key]) if key in before.jobs else 0,
                waits=waits,
                preempted=self._preempted[key],
                lost=self._lost[key],
                is_submitted=key in submitted,
                reason=self._reasons.get(key, "") if waits else "",
                expected_start=starts.get(key, 0),
            )
            if waits or one.is_worse or one.lost or one.is_submitted or one.runs != one.runs_before:
                found.append(one)
        return found

    def _starts(self) -> Mapping[JobKey, int]:
        found: dict[JobKey, int] = {}
        for pool, row in sorted(self.state.node_pools.items()):
            if row.batch_queue is not None:
                found |= {key: forecast.likely for key, forecast in forecasts(self.state, pool, self._now).items()}
        return found


def _running(state: Snapshot) -> Counter[JobKey]:
    """The allocations of each job that run, or are about to, and are not to stop."""
    allocs: Iterable[JobKey] = (
        (alloc.namespace, alloc.job_id)
        for alloc in state.allocs.values()
        if is_using(alloc) and not is_server_terminal(alloc)
    )
    return Counter(allocs)


def _missing(state: Snapshot, job: Job) -> int:
    """The number of a job's missing allocations; 0 for jobs that run on every suitable node."""
    if job.stop or job.is_template or job.type in _PER_NODE_JOBS:
        return 0
    present: Counter[str] = Counter()
    for alloc in state.allocs_of_job(job.namespace, job.id):
        is_done = job.type == status.JOB_BATCH and alloc.client_status == status.CLIENT_COMPLETE
        if is_done or (is_using(alloc) and not is_server_terminal(alloc)):
            present[alloc.task_group] += 1
    return sum(max(0, group.count - present[group.name]) for group in job.task_groups)


def _reason(ended: Evaluation) -> str:
    """Why an evaluation did not place all: the quota, or what the nodes lack."""
    if ended.quota_limit_reached:
        return f'quota "{ended.quota_limit_reached}" is used up'
    for group, metric in sorted(ended.failed_tg_allocs.items()):
        lacks = [f"{name} exhausted on {_nodes(each)}" for name, each in sorted(metric.dimension_exhausted.items())]
        lacks += [f"{name} excludes {_nodes(each)}" for name, each in sorted(metric.constraint_filtered.items())]
        where = "; ".join(lacks) or f"none of {_nodes(metric.nodes_evaluated)} suits it"
        return f'group "{group}": {where}'
    return ended.status_description


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"
