"""The reconciler: compares a job's declaration with its allocations, group by group (docs/explanation/reconciling.md).

It chooses no nodes. The results are stops, named placements, updates in place or by replacement, follow-up evaluations
and the deployment. Every allocation of a group ends in exactly one place; the counts of `DesiredUpdates` say in which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from yurt.scheduler.ids import SeededIds
from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.classify import classify_all, is_abandoned
from yurt.scheduler.reconcile.deployments import cancel_unneeded, is_complete, new_deployment
from yurt.scheduler.reconcile.group import reconcile_group
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.results import Results, StopRequest
from yurt.sdk.value import UnixNano
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import DesiredUpdates, Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.status import (
    CLIENT_LOST,
    CLIENT_TERMINAL,
    DEPLOYMENT_SUCCESSFUL,
    JOB_BATCH,
    SERVER_TERMINAL,
    ClientStatus,
    NotGiven,
)


class Situation(msgspec.Struct, frozen=True):
    """All inputs of the reconciler."""

    job: Job | None
    evaluation: Evaluation
    allocs: tuple[Allocation, ...]
    nodes: Mapping[str, Node | None]
    waiting_evals: frozenset[str]
    deployment: Deployment | None
    now: UnixNano
    ids: SeededIds
    fits_in_place: Callable[[Allocation], bool]


def reconcile(situation: Situation) -> Results:
    """The results for the whole job."""
    results = Results()
    job = situation.job
    # The deployment first: that of an older version or a stopped job is cancelled, and no group continues it.
    deployment = cancel_unneeded(situation.deployment, job, results)
    by_group: dict[str, list[Allocation]] = {}
    for alloc in situation.allocs:
        # Stopped already, but its client can no longer confirm it: without this its capacity would stay taken for ever.
        if is_abandoned(alloc, situation.nodes.get(alloc.node_id), now=situation.now):
            results.stops.append(StopRequest(alloc, why.LOST, CLIENT_LOST))
        by_group.setdefault(alloc.task_group, []).append(alloc)
    if job is None or job.stop:
        for name, allocs in by_group.items():
            stop_all(results, situation, name, allocs)
        return results
    groups = {group.name: group for group in job.task_groups}
    is_done = True
    # Groups in the order of the job file: those further up get capacity first, on every server alike.
    for name in [*groups, *(name for name in by_group if name not in groups)]:
        group = groups.get(name)
        allocs = by_group.get(name, [])
        if group is None or group.count <= 0:
            stop_all(results, situation, name, allocs)
            continue
        context = GroupContext(
            job=job,
            group=group,
            evaluation=situation.evaluation,
            deployment=deployment,
            nodes=situation.nodes,
            waiting_evals=situation.waiting_evals,
            now=situation.now,
            ids=situation.ids,
            fits_in_place=situation.fits_in_place,
        )
        # Every group is reconciled: `&=` does not stop at the first incomplete one, as `and` would.
        is_done &= reconcile_group(context, results, allocs)
    assert results.states.keys() <= groups.keys(), (results.states.keys(), "only groups of the job roll out")
    results.deployment = new_deployment(job, deployment, results, ids=situation.ids, now=situation.now)
    if is_done and deployment is not None and is_complete(deployment):
        results.deployment_updates.append(
            DeploymentUpdate(
                deployment_id=deployment.id,
                status=DEPLOYMENT_SUCCESSFUL,
                status_description="Deployment completed successfully",
            )
        )
    return results


def stop_all(results: Results, situation: Situation, group: str, allocs: list[Allocation]) -> None:
    """Stop all allocations of an unwanted group."""
    is_batch = situation.evaluation.type == JOB_BATCH
    classes = classify_all(allocs, situation.nodes, is_batch=is_batch, now=situation.now)
    count = 0
    stopped: tuple[tuple[list[Allocation], str, ClientStatus | NotGiven], ...] = (
        (classes.untainted, why.NOT_NEEDED, ""),
        (classes.migrate, why.NOT_NEEDED, ""),
        (classes.disconnecting, why.NOT_NEEDED, ""),
        (classes.reconnecting, why.NOT_NEEDED, ""),
        (classes.lost, why.LOST, CLIENT_LOST),
        (classes.expiring, why.LOST, CLIENT_LOST),
    )
    for of_class, description, client_status in stopped:
        for alloc in of_class:
            if alloc.desired_status in SERVER_TERMINAL or alloc.client_status in CLIENT_TERMINAL:
                continue
            results.stops.append(StopRequest(alloc, description, client_status))
            count += 1
    if count:
        results.desired[group] = DesiredUpdates(stop=count)
