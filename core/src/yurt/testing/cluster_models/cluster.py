"""A cluster without servers: a state that changes by the scheduler's plans and by obedient clients."""

from __future__ import annotations

from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource
from yurt.structs.predicates import eval_type, is_client_terminal, is_server_terminal, is_terminal
from yurt.structs.rules import RULES_VERSION
from yurt.structs.status import ClientStatus, TaskStatus, Trigger
from yurt.testing import factories

ROUNDS = 60


class PlannedCluster:
    """A state that changes by the scheduler's plans and by clients that carry them out."""

    def __init__(self, nodes: int = 6) -> None:
        self.state = Snapshot.empty()
        self.now = UnixNano(factories.NOW)
        self.least_live: int | None = None
        for number in range(nodes):
            node = factories.node(factories.number_id(number, kind=1))
            eth0 = NetworkResource(mode="host", device="eth0", ip=f"10.0.0.{number + 1}")
            self.do(c.RegisterNode(node=replace(node, node_resources=replace(node.node_resources, networks=(eth0,)))))

    def do(self, command: c.AnyCommand) -> None:
        """Apply a command that must be accepted."""
        step = apply(self.state, replace(command, rules_version=RULES_VERSION), index=self.state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        self.state = step.state

    def register(self, job: Job) -> None:
        """Store the job, without an evaluation."""
        self.do(c.RegisterJob(job=job))

    def evaluate(self, job: Job, trigger: Trigger = status.TRIGGER_JOB_REGISTER, eval_id: str = "") -> bool:
        """Run one evaluation; returns whether it changed anything."""
        self.now = UnixNano(self.now + seconds(1))
        evaluation = Evaluation(
            id=eval_id or factories.new_id(),
            namespace=job.namespace,
            job_id=job.id,
            type=eval_type(job),
            triggered_by=trigger,
        )
        made = scheduler.attempt(self.state, evaluation, now=self.now, seed=self.state.index)
        result = check_plan(self.state, made.plan)
        assert result.is_full, result.rejected_nodes
        self.followups = [follow for follow in made.outcome.created if follow.wait_until]
        self.blocked = [made_eval for made_eval in made.outcome.created if made_eval.status == status.EVAL_BLOCKED]
        if not made.plan.is_empty:
            self.do(c.ApplyPlan(plan=made.plan))
        return not made.plan.is_empty

    def clients_act(self, job: Job, healthy: bool = True) -> None:
        """Let clients act: stopped allocations end, pending ones run and become healthy."""
        updates = []
        for alloc in self.state.allocs_of_job(job.namespace, job.id):
            if is_client_terminal(alloc):
                continue
            if is_server_terminal(alloc):
                updates.append(self._update(alloc, status.CLIENT_COMPLETE, status.TASK_DEAD))
            elif alloc.client_status == status.CLIENT_PENDING or _is_undecided(alloc):
                update = self._update(alloc, status.CLIENT_RUNNING, status.TASK_RUNNING)
                if alloc.deployment_id:
                    was_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
                    health = AllocDeploymentStatus(healthy=healthy, timestamp=self.now, canary=was_canary)
                    update = replace(update, deployment_status=health)
                updates.append(update)
        if updates:
            self.do(c.UpdateAllocsFromClient(updates=tuple(updates), now=self.now))

    def end(self, alloc: Allocation, client_status: ClientStatus) -> None:
        """End one allocation by itself."""
        failed = client_status == status.CLIENT_FAILED
        self.do(c.UpdateAllocsFromClient(updates=(self._update(alloc, client_status, "dead", failed),), now=self.now))

    def settle(self, job: Job) -> int:
        """Evaluate until nothing changes; returns the number of rounds."""
        for number in range(ROUNDS):
            is_changed = self.evaluate(job)
            self.least_live = min(self.least_live or 10**9, len(self.live(job)))
            self.clients_act(job)
            if not is_changed:
                return number
        raise AssertionError("the scheduler keeps changing its mind")

    def live(self, job: Job) -> list[Allocation]:
        """The job's allocations that are desired and not terminal."""
        return [a for a in self.state.allocs_of_job(job.namespace, job.id) if not is_terminal(a)]

    def names(self, job: Job) -> list[str]:
        """The names of the live allocations."""
        return sorted(alloc.name for alloc in self.live(job))

    def _update(
        self, alloc: Allocation, client_status: ClientStatus, state: TaskStatus, failed: bool = False
    ) -> c.AllocUpdate:
        return c.AllocUpdate(
            id=alloc.id,
            node_id=alloc.node_id,
            client_status=client_status,
            task_states={"web": TaskState(state=state, failed=failed, started_at=self.now, finished_at=self.now)},
        )


def _is_undecided(alloc: Allocation) -> bool:
    health = alloc.deployment_status
    return bool(alloc.deployment_id) and (health is None or health.healthy is None)
