"""Checks that a cluster settles after faults have stopped and that nothing forbidden remains (B5, D1, D8, E4).

Every evaluation ends; a blocked one still finds no room when it is tried again; each job runs what it asks for or has
a reason; servers and hosts agree on what runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from yurt import scheduler
from yurt.scheduler.capacity.limits import LimitsOf
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.predicates import eval_type, is_client_terminal, is_terminal
from yurt.testing.sim.agents import ClientAgent, ServerAgent

ALONGSIDE = "work alongside task "
"""How the names of asyncio tasks of hooks begin; they end with the first letters of the allocation's id."""
IN_TIME = ", and has time left"
"""The suffix of texts about deployments that are not a problem yet: failing tasks extend the deadline each time."""


def draining(servers: list[ServerAgent]) -> list[str]:
    """The nodes that have a drain with a deadline."""
    drains = [(each.name, each.drain_strategy) for each in _newest_nodes(servers)]
    return sorted(name for name, strategy in drains if strategy is not None and strategy.force_deadline)


def ineligible(servers: list[ServerAgent]) -> list[str]:
    """The ids of the nodes that get no new allocations until an operator allows it."""
    return sorted(each.id for each in _newest_nodes(servers) if each.scheduling_eligibility != status.ELIGIBLE)


def wanted_jobs(servers: list[ServerAgent]) -> list[str]:
    """The ids of the jobs of users that are not stopped."""
    return sorted(each.id for each in newest_state(servers).jobs.values() if not each.stop and not each.parent_id)


def newest_state(servers: list[ServerAgent]) -> Snapshot:
    """The newest state of any server."""
    states = [each.server.state for each in servers if each.server is not None]
    return max(states, key=lambda state: state.index) if states else Snapshot.empty()


def _newest_nodes(servers: list[ServerAgent]) -> Iterable[Node]:
    return newest_state(servers).nodes.values()


JobVersion = tuple[str, str, int, int]
"""A version of a job: namespace, id, the index of its creation and the version's number."""


def problems_of(
    servers: list[ServerAgent],
    clients: list[ClientAgent],
    *,
    failed: Collection[JobVersion] = (),
    has_devices: bool = False,
) -> list[str]:
    """The reasons why the cluster has not settled; `has_devices`: nodes have device plugins.

    `failed` are versions of jobs of which a deployment failed: they place nothing more, and the garbage collector may
    have taken the deployment.
    """
    states = [agent.server.state for agent in servers if agent.server is not None]
    if len({state.index for state in states}) != 1 or len(states) != len(servers):
        return ["servers have not caught up"]
    state = states[0]
    leading = [agent.server for agent in servers if agent.server is not None and agent.server.is_leader]
    if len(leading) != 1:
        return ["nobody leads"]
    now = leading[0].replica.env.now()
    found = [
        f"evaluation {each.id[:8]} of {each.job_id} is pending ({each.triggered_by})"
        for each in state.evals.where("status", status.EVAL_PENDING)
        if not each.wait_until
    ]
    blocked = Counter(
        (each.namespace, each.job_id, each.node_id) for each in state.evals.where("status", status.EVAL_BLOCKED)
    )
    found += [f"{each.name} is {each.status}" for each in state.nodes.values() if each.status != status.NODE_READY]
    found += [f"{key[1]} has {count} blocked evaluations" for key, count in blocked.items() if count > 1]
    found += [
        f"{each.id[:8]} of {each.job_id} is {each.client_status}, and its job is gone"
        for each in state.allocs.values()
        if not is_terminal(each) and (each.namespace, each.job_id) not in state.jobs
    ]
    for job in state.jobs.values():
        limits, has_failed = leading[0].scheduling.limits["limits"], version_of(job) in failed
        found += _problems_of_job(state, job, now, limits, has_failed=has_failed)
    found += [
        f"the deployment of {each.job_id} has not ended" + (IN_TIME if _is_in_time(each, now) else "")
        for each in state.deployments.values()
        if each.status == status.DEPLOYMENT_RUNNING
        and not _waits_for_promotion(each)
        and not _waits_for_room(state, each)
    ]
    found += problems_of_devices(servers, clients) if has_devices else []
    found += _problems_of_hosts(state, clients)
    # Last, and only where all else is well: these attempts cost more than all other checks.
    return found or unfinished_jobs(state, now, leading[0].scheduling.limits["limits"], failed)


def unfinished_jobs(state: Snapshot, now: UnixNano, limits: LimitsOf, failed: Collection[JobVersion] = ()) -> list[str]:
    """The jobs at which an evaluation would change something, although none is to come.

    Not those that `failed`, and whose failed deployment was collected: the next one would begin another. And not system
    jobs whose allocations have failed: these are not rescheduled, and replaced with the next evaluation of their job.
    """
    found = []
    for job in state.jobs.values():
        later = [each for each in state.evals.where("job", job.key) if each.status == status.EVAL_PENDING]
        if later:
            continue
        evaluation = Evaluation(
            id="again",
            namespace=job.namespace,
            job_id=job.id,
            type=eval_type(job),
            priority=job.priority,
            triggered_by=status.TRIGGER_JOB_REGISTER,
        )
        plan = scheduler.attempt(state, evaluation, now=now, seed=1, limits=limits).plan
        is_collected = plan.deployment is not None and version_of(job) in failed
        is_left_failed = job.type == status.JOB_SYSTEM and _replaces_failed(state, plan)
        if not (plan.is_empty or is_collected or is_left_failed):
            found.append(
                f"{job.id}: nothing evaluates it, and an evaluation would place {len(plan.placements)}, "
                f"stop {len(plan.stops)} and change {len(plan.in_place) + len(plan.attributes)}"
            )
    return found


def _replaces_failed(state: Snapshot, plan: Plan) -> bool:
    """Whether all that a plan does is to replace failed allocations."""
    previous = [state.allocs.get(each.previous_allocation) for each in plan.placements]
    has_more = plan.stops or plan.in_place or plan.attributes
    return not has_more and all(each is not None and each.client_status == status.CLIENT_FAILED for each in previous)


def version_of(job: Job) -> JobVersion:
    """The key of a job's version."""
    return (job.namespace, job.id, job.create_index, job.version)


def _problems_of_job(
    state: Snapshot, job: Job, now: UnixNano, limits: LimitsOf, *, has_failed: bool = False
) -> list[str]:
    allocs = state.allocs_of_job(*job.key)
    live = [each for each in allocs if not is_terminal(each)]
    if job.stop:
        return [f"{job.id} is stopped and {each.id[:8]} runs" for each in live]
    blocked = [each for each in state.evals.where("job", job.key) if each.status == status.EVAL_BLOCKED]
    found = []
    for each in blocked:
        again = scheduler.attempt(state, replace(each, status=status.EVAL_PENDING), now=now, seed=1, limits=limits)
        if not (again.outcome.reblock or again.outcome.evaluation.failed_tg_allocs):
            found.append(f"blocked evaluation {each.id[:8]} of {job.id} waits for nothing")
    is_launched = job.periodic is None and job.parameterized_job is None
    if (
        job.type == status.JOB_SERVICE
        and is_launched
        and not blocked
        and not is_halted(state, job, has_failed=has_failed)
    ):
        running = [each for each in live if each.client_status == status.CLIENT_RUNNING]
        wanted = sum(group.count for group in job.task_groups)
        later = [each for each in state.evals.where("job", job.key) if each.status == status.EVAL_PENDING]
        if len(running) != wanted and not later:
            found.append(f"{job.id}: {len(running)} of {wanted} run")
    return found


def is_halted(state: Snapshot, job: Job, *, has_failed: bool) -> bool:
    """Whether a deployment places nothing more: it failed, and may have been collected, or waits for its promotion."""
    deployment = state.latest_deployment(*job.key)
    if deployment is None or (deployment.job_version, deployment.job_create_index) != (job.version, job.create_index):
        return has_failed
    is_waiting = deployment.status == status.DEPLOYMENT_RUNNING and _waits_for_promotion(deployment)
    return deployment.status == status.DEPLOYMENT_FAILED or is_waiting


def _waits_for_room(state: Snapshot, deployment: Deployment) -> bool:
    """Whether no deadline ends it, as in Nomad: a deadline begins with the first placement of a group, and ends no
    deployment that had as many healthy allocations as it wants; replacements of those may find no room."""
    key = (deployment.namespace, deployment.job_id)
    is_blocked = any(each.status == status.EVAL_BLOCKED for each in state.evals.where("job", key))
    return is_blocked and any(
        (not group.placed_allocs and not group.require_progress_by) or group.healthy_allocs >= group.desired_total
        for group in deployment.task_groups.values()
    )


def _is_in_time(deployment: Deployment, now: UnixNano) -> bool:
    return any(group.require_progress_by > now for group in deployment.task_groups.values())


def _waits_for_promotion(deployment: Deployment) -> bool:
    return any(group.desired_canaries and not group.promoted for group in deployment.task_groups.values())


def _problems_of_hosts(state: Snapshot, clients: list[ClientAgent]) -> list[str]:
    """Tasks without a desired allocation, and desired allocations that run nowhere."""
    found = []
    for client in clients:
        wanted = {each.id: each for each in state.allocs_of_node(client.node_id)}
        running = {run.alloc_id for run in client.machine.live()}
        for alloc_id in sorted(running):
            alloc = wanted.get(alloc_id)
            if alloc is None or alloc.desired_status != status.DESIRED_RUN or is_client_terminal(alloc):
                found.append(f"{alloc_id[:8]} runs on {client.name}, and {_alloc_text(alloc)}")
        found += [
            f"{alloc.id[:8]} of {alloc.job_id} is running for the servers, and not on {client.name}"
            for alloc in wanted.values()
            if alloc.client_status == status.CLIENT_RUNNING and not is_terminal(alloc) and alloc.id not in running
        ]
        found += [
            f"{alloc.id[:8]} of {alloc.job_id} has ended on {client.name}, and the servers know {alloc.client_status}"
            for alloc in wanted.values()
            if alloc.desired_status != status.DESIRED_RUN and not is_client_terminal(alloc) and alloc.id not in running
        ]
        living = {each[:8] for each in running} | {
            each.id[:8] for each in wanted.values() if not is_client_terminal(each)
        }
        found += [f"{client.name} has {name}, which has ended" for name in _work_alongside(client, living)]
    return found


def _work_alongside(client: ClientAgent, living: Collection[str]) -> list[str]:
    """The names of asyncio tasks of hooks whose allocation is not among the living ones."""
    tasks = client.process.tasks if client.process is not None else ()
    names = [task.get_name() for task in tasks if not task.done()]
    return sorted(each for each in names if each.startswith(ALONGSIDE) and each.rpartition(" ")[2] not in living)


def problems_of_devices(servers: list[ServerAgent], clients: list[ClientAgent]) -> list[str]:
    """Differences between the devices of the nodes, their plugins and the servers."""
    states = [agent.server.state for agent in servers if agent.server is not None]
    nodes = max(states, key=lambda each: each.index).nodes
    found = []
    for client in clients:
        node = nodes.get(client.node_id)
        if node is None:
            found.append(f"{client.name} is not registered")  # it was down, and the garbage collector took it
            continue
        live = [(run.alloc_id, run.task) for run in client.machine.live()]
        found += client.machine.hardware.problems(node, live)
    return found


def _alloc_text(alloc: Allocation | None) -> str:
    if alloc is None:
        return "no server knows it"
    return f"the servers want {alloc.desired_status} and know {alloc.client_status}"
