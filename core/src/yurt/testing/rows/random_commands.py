"""Random commands of every type over few ids, so that they often touch the same job, node or allocation.

Most of them fit the state; some name what is not there or say nonsense, as a hostile or outdated log entry would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from random import Random
from typing import Any, TypeVar

from yurt.fsm import ApplyResult, apply
from yurt.fsm.basis import expectation
from yurt.fsm.restore import framed
from yurt.fsm.snapshot import encode
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.state.gangs import candidates
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import (
    AllocatedSharedResources,
    Allocation,
    AllocDeploymentStatus,
    DesiredTransition,
    RescheduleTracker,
    TaskEvent,
    TaskState,
)
from yurt.structs.cluster import AutopilotConfiguration, Namespace, NodePool, SchedulerConfiguration
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import (
    Job,
    JobSubmission,
    JobVersionTag,
    ParameterizedJobConfig,
    PeriodicConfig,
    ScalingEvent,
)
from yurt.structs.network import PortMapping
from yurt.structs.node import DrainStrategy, HostVolumeInfo, NodeEvent
from yurt.structs.plan import AllocStop, AttributeUpdate, DeploymentUpdate, InPlaceUpdate, Placement, Plan
from yurt.structs.policies import Gang, Rendezvous
from yurt.structs.quota import QuotaLimit, QuotaResources, QuotaSpec, QuotaStorageResources, with_hashes
from yurt.structs.service import ServiceRegistration
from yurt.structs.status import ClientStatus, DeploymentStatus, Eligibility, EvalStatus, NodeStatus
from yurt.structs.variable import KEY_ACTIVE, KEY_PREPUBLISHED, EncryptedVariable, RootKeyMeta, VariableLock
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import PENDING, UNAVAILABLE, HostVolume, HostVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.rows import random_idle
from yurt.testing.rows.random_acl import AclMaker
from yurt.testing.rows.random_devices import DEVICE_ID, with_devices

T = TypeVar("T")

JOBS = ("web", "db", "cron", "gone")
NAMESPACES = ("default", "default", "ops")
NODES = tuple(factories.number_id(number, kind=1) for number in range(4))
GROUPS = ("web", "cache")
GANG = Gang(min=1, rendezvous=Rendezvous(framework="torch", port="meet"))
WITH_PORT = AllocatedSharedResources(ports=(PortMapping(label="meet", value=20001, host_ip="10.0.0.1"),))
VOLUME_NAME, VOLUME_IDS = "data", tuple(factories.number_id(number, kind=5) for number in range(3))
WRITERS = HostVolumeCapability(access_mode="single-node-multi-writer", attachment_mode="file-system")
PATHS = ("nomad/jobs", "nomad/jobs/web", "app/settings")
CLIENT_STATUSES: tuple[ClientStatus, ...] = (
    status.CLIENT_PENDING, status.CLIENT_RUNNING, status.CLIENT_RUNNING, status.CLIENT_COMPLETE, status.CLIENT_FAILED,
    status.CLIENT_LOST, status.CLIENT_UNKNOWN, status.CLIENT_PENDING,
)  # fmt: skip
EVAL_STATUSES: tuple[EvalStatus, ...] = (
    status.EVAL_CANCELED, status.EVAL_COMPLETE, status.EVAL_FAILED, status.EVAL_PENDING, status.EVAL_BLOCKED,
    status.EVAL_BLOCKED, status.EVAL_PENDING,
)  # fmt: skip
NODE_STATUSES: tuple[NodeStatus, ...] = (
    status.NODE_READY, status.NODE_READY, status.NODE_DOWN, status.NODE_DISCONNECTED, status.NODE_INIT,
)  # fmt: skip
DEPLOYMENT_STATUSES: tuple[DeploymentStatus, ...] = (
    status.DEPLOYMENT_RUNNING, status.DEPLOYMENT_PAUSED, status.DEPLOYMENT_FAILED, status.DEPLOYMENT_SUCCESSFUL,
    status.DEPLOYMENT_CANCELLED, status.DEPLOYMENT_BLOCKED,
)  # fmt: skip


def random_history(random: Random, length: int) -> Iterator[ApplyResult]:
    """Apply random commands to the empty state; yields every step."""
    maker, state = CommandMaker(random), Snapshot.empty()
    for _ in range(length):
        step = apply(state, maker.command(state), index=state.index + 1)
        state = step.state
        yield step


class CommandMaker:
    """Generates random commands; ids are counted and the clock advances with each command."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._made = 0
        self._now = factories.NOW
        self._following: c.AnyCommand | None = None
        self._makers: tuple[Callable[[Snapshot], c.AnyCommand], ...] = (
            self._register_job, self._register_job, self._deregister, self._stability, self._delete_jobs,
            self._tag, self._scaling, self._scale, self._dispatch, self._periodic_launch, self._evaluate, self._gang,
            self._register_node, self._device, self._register_node, self._node_status, self._eligibility, self._drain,
            self._node_events, self._delete_nodes, self._evaluate_node,
            self._evaluations, self._evaluations, self._delete_evaluations,
            self._plan, self._plan, self._plan, self._plan, self._updates, self._updates, self._updates,
            self._staged, self._drop_staged, self._transitions, self._services, self._drop_services,
            self._deployment_status, self._deployment_health, self._promote, self._promote, self._delete_deployments,
            self._namespaces, self._delete_namespaces, self._pools, self._delete_pools, self._scheduler,
            self._variable, self._variable, self._lock, self._unlock, self._drop_variable, self._root_key,
            self._drop_root_keys, self._rekey, self._rekey_methods,
            self._autopilot, self._volumes, self._delete_volumes, self._host_volume, self._host_volume,
            self._drop_host_volume, self._drop_claim, self._launch, self._schema, self._restore,
            lambda state: c.KeepAlive(), *(self._access_control,) * 4, self._quotas, self._delete_quotas,
            *(lambda state: random_idle.idle_command(state, random, self._now),) * 4,
            lambda state: c.SetClusterID(cluster_id=self._new_id()),
        )  # fmt: skip
        self._acl = AclMaker(random)

    def command(self, state: Snapshot) -> c.AnyCommand:
        """A random command for this state."""
        self._now = UnixNano(self._now + 1_000_000_000)
        following, self._following = self._following, None
        return following or self._pick(self._makers)(state)

    def _access_control(self, state: Snapshot) -> c.AnyCommand:
        return self._acl.command(state, self._now)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def _some(self, choices: Sequence[T], limit: int = 3) -> tuple[T, ...]:
        return tuple(self._pick(choices) for _ in range(self._random.randrange(limit + 1))) if choices else ()

    def _maybe(self) -> bool:
        return self._random.randrange(2) == 0

    def _new_id(self) -> str:
        self._made += 1
        return factories.number_id(self._made, kind=2)

    def _any(self, state: Snapshot, table: str) -> str:
        """A key of the table, or one that does not exist."""
        keys = sorted(state.table(table).keys())
        return self._pick(keys) if keys and self._random.randrange(8) else factories.number_id(99, kind=9)

    def _sealed(self, state: Snapshot, lock: VariableLock | None = None) -> EncryptedVariable:
        namespace, path = self._pick(NAMESPACES), self._pick(PATHS)
        key_id, data = self._any(state, "root_keys"), self._new_id().encode()
        return EncryptedVariable(namespace=namespace, path=path, key_id=key_id, data=data, lock=lock)

    def _held_lock(self, state: Snapshot) -> tuple[tuple[str, str], str]:
        """A variable and the id of its lock; either may not exist."""
        locked = state.variables.where("locked", "locked")
        if locked and self._random.randrange(6):
            locked_row = self._pick(locked)
            return locked_row.key, locked_row.lock.id if locked_row.lock is not None else ""
        return (self._pick(NAMESPACES), self._pick(PATHS)), self._pick(("", "lock-1"))

    def _variable(self, state: Snapshot) -> c.PutVariable:
        (namespace, path), lock_id = self._held_lock(state)
        variable = replace(self._sealed(state), namespace=namespace, path=path) if lock_id else self._sealed(state)
        check = self._pick((None, None, 0, state.index))
        return c.PutVariable(variable=variable, check_index=check, lock_id=lock_id, now=self._now, region="global")

    def _lock(self, state: Snapshot) -> c.LockVariable:
        lock = VariableLock(id=self._pick(("lock-1", "lock-2", "")), ttl=seconds(10))
        return c.LockVariable(variable=self._sealed(state, lock=lock), now=self._now)

    def _unlock(self, state: Snapshot) -> c.ReleaseVariableLock:
        (namespace, path), lock_id = self._held_lock(state)
        return c.ReleaseVariableLock(namespace=namespace, path=path, lock_id=lock_id, now=self._now)

    def _drop_variable(self, state: Snapshot) -> c.DeleteVariable:
        (namespace, path), lock_id = self._held_lock(state)
        return c.DeleteVariable(namespace=namespace, path=path, lock_id=lock_id, check_index=self._pick((None, 0)))

    def _root_key(self, state: Snapshot) -> c.PutRootKey:
        key_id = self._any(state, "root_keys") if self._maybe() else self._new_id()
        key = RootKeyMeta(key_id=key_id, state=self._pick((KEY_ACTIVE, KEY_PREPUBLISHED)), create_time=self._now)
        return c.PutRootKey(key=key, is_full=self._maybe())

    def _drop_root_keys(self, state: Snapshot) -> c.DeleteRootKeys:
        return c.DeleteRootKeys(key_ids=(self._any(state, "root_keys"),), is_forced=self._random.randrange(4) == 0)

    def _rekey(self, state: Snapshot) -> c.RekeyVariables:
        key_id = self._any(state, "root_keys")
        some = self._some(sorted(state.variables.values(), key=lambda each: each.key))
        return c.RekeyVariables(variables=tuple(replace(each, key_id=key_id, data=b"again") for each in some))

    def _rekey_methods(self, state: Snapshot) -> c.RekeyACLAuthMethods:
        key_id = self._any(state, "root_keys")
        some = self._some(sorted(state.acl_auth_methods.values(), key=lambda each: each.name))
        again = tuple(replace(each, key_id=key_id, sealed_secrets=b"again") for each in some)
        return c.RekeyACLAuthMethods(methods=again)

    def _job(self) -> Job:
        job_type = self._pick((status.JOB_SERVICE, status.JOB_SERVICE, status.JOB_BATCH, status.JOB_SYSTEM))
        sticky = {"v": VolumeRequest(name="v", type="host", source=VOLUME_NAME, sticky=True)}
        more: dict[str, Any] = self._pick(({}, {"volumes": sticky}, {"gang": GANG}, {"gang": random_idle.GANG}, {}))
        more |= self._pick(({}, {"tasks": (random_idle.idle_task(self._random),)}))
        groups = tuple(
            factories.group(name, count=self._random.randrange(4), **more) for name in GROUPS[: self._pick((1, 2))]
        )
        return factories.job(
            self._pick(JOBS),
            namespace=self._pick(NAMESPACES),
            type=job_type,
            task_groups=groups,
            priority=self._pick((50, 60)),
            stop=self._random.randrange(6) == 0,
            parent_id=self._pick(("", "", "cron")),
            periodic=PeriodicConfig(spec="@daily") if self._random.randrange(5) == 0 else None,
            parameterized_job=ParameterizedJobConfig() if self._random.randrange(5) == 0 else None,
            node_pool=self._pick(("default", "default", "gpu")),
        )

    def _evaluation(self, state: Snapshot, job_id: str = "", namespace: str = "default") -> Evaluation:
        known = sorted(state.evals.keys())
        of = factories.job(job_id or self._pick(JOBS), namespace=namespace)
        return factories.evaluation(
            of,
            id=self._pick(known) if known and self._maybe() else self._new_id(),
            status=self._pick(EVAL_STATUSES) if self._maybe() else status.EVAL_PENDING,
            queued_allocations={self._pick(GROUPS): self._random.randrange(5)} if self._maybe() else {},
            failed_tg_allocs={"web": AllocationMetric(nodes_evaluated=3)} if self._maybe() else {},
            modify_time=self._now,
        )

    def _register_job(self, state: Snapshot) -> c.AnyCommand:
        job = self._job()
        return c.RegisterJob(
            job=job,
            evaluation=self._evaluation(state, job.id, job.namespace) if self._maybe() else None,
            submission=JobSubmission(source="job", format="hcl2") if self._maybe() else None,
            deployment_update=self._deployment_update(state) if self._random.randrange(5) == 0 else None,
            tracked_versions=self._pick((6, 2, 1, 0)),
            based_on=(expectation(state, "jobs", job.key),) if self._random.randrange(4) == 0 else (),
        )

    def _deregister(self, state: Snapshot) -> c.AnyCommand:
        return c.DeregisterJob(
            namespace=self._pick(NAMESPACES),
            job_id=self._pick(JOBS),
            purge=self._maybe(),
            evaluation=self._evaluation(state) if self._maybe() else None,
        )

    def _stability(self, state: Snapshot) -> c.AnyCommand:
        return c.SetJobStability(
            namespace="default", job_id=self._pick(JOBS), version=self._random.randrange(4), stable=self._maybe()
        )

    def _tag(self, state: Snapshot) -> c.AnyCommand:
        tag = JobVersionTag(description="kept", tagged_time=self._now) if self._random.randrange(3) else None
        name, version = self._pick(("golden", "silver")), self._random.randrange(4)
        return c.SetJobVersionTag(namespace="default", job_id=self._pick(JOBS), name=name, version=version, tag=tag)

    def _scaling(self, state: Snapshot) -> c.AnyCommand:
        event = ScalingEvent(time=self._now, count=self._pick((None, 3)), message="scaled")
        return c.RecordScalingEvent(namespace="default", job_id=self._pick(JOBS), group=self._pick(GROUPS), event=event)

    def _gang(self, state: Snapshot) -> c.AnyCommand:
        job_id, group = self._pick(JOBS), self._pick(GROUPS)
        last = getattr(state.gang_rosters.get(("default", job_id, group)), "generation", 0)
        found = candidates(state.allocs_of_job("default", job_id), group)[self._pick((0, 0, 0, 1)) :]
        after, members = last + self._pick((0, 0, 0, 1)), tuple(alloc.id for alloc in found)
        return c.FormGang(namespace="default", job_id=job_id, group=group, after=after, members=members)

    def _scale(self, state: Snapshot) -> c.AnyCommand:
        job_id = self._pick(JOBS)
        return c.ScaleJob(
            namespace="default",
            job_id=job_id,
            group=self._pick(GROUPS),
            event=ScalingEvent(time=self._now, count=self._pick((None, 0, 1, 2)), message="scaled"),
            enforce_index=self._pick((None, None, 0, state.index)),
            evaluation=self._evaluation(state, job_id) if self._maybe() else None,
            count_max=self._pick((0, 3)),
        )

    def _dispatch(self, state: Snapshot) -> c.AnyCommand:
        job_id, number = self._pick(JOBS), self._random.randrange(4)
        child_id = f"{job_id}/dispatch-{number}"
        return c.DispatchJob(
            namespace="default",
            job_id=job_id,
            child_id=child_id,
            idempotency_token=self._pick(("", "once")),
            evaluation=self._evaluation(state, child_id) if self._maybe() else None,
            now=self._now,
        )

    def _periodic_launch(self, state: Snapshot) -> c.AnyCommand:
        job_id = self._pick(JOBS)
        job = state.jobs.get(("default", job_id))
        return c.LaunchPeriodicJob(
            namespace="default",
            job_id=job_id,
            launched_at=self._now,
            specification_index=self._pick((0, job.job_modify_index if job is not None else 1, state.index)),
            evaluation=self._evaluation(state, job_id) if self._maybe() else None,
            now=self._now,
        )

    def _evaluate(self, state: Snapshot) -> c.AnyCommand:
        job_id = self._pick(JOBS)
        return c.EvaluateJob(namespace="default", job_id=job_id, evaluation=self._evaluation(state, job_id))

    def _delete_jobs(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteJobs(keys=tuple((self._pick(NAMESPACES), self._pick(JOBS)) for _ in range(2)))

    def _register_node(self, state: Snapshot) -> c.AnyCommand:
        node = factories.node(
            self._pick(NODES),
            node_pool=self._pick(("default", "gpu")),
            meta={"rack": self._pick("ab")},
            host_volumes=self._pick(({}, {VOLUME_NAME: HostVolumeInfo(path="/v", id=self._pick(VOLUME_IDS))})),
        )
        node = with_devices(node, f"{node.id} {self._now}")
        return c.RegisterNode(
            node=replace(node, status=self._pick((status.NODE_INIT, status.NODE_READY, status.NODE_DOWN))),
            create_node_pool=self._maybe(),
        )

    def _event(self) -> NodeEvent:
        return NodeEvent(message="something", subsystem="Cluster", timestamp=self._now)

    def _node_status(self, state: Snapshot) -> c.AnyCommand:
        return c.SetNodeStatus(
            node_id=self._any(state, "nodes"),
            status=self._pick(NODE_STATUSES),
            updated_at=self._now // 1_000_000_000,
            event=self._event() if self._maybe() else None,
            seed=self._seed(),
        )

    def _seed(self) -> c.EvalSeed | None:
        return c.EvalSeed(seed=self._new_id(), now=self._now) if self._maybe() else None

    def _evaluate_node(self, state: Snapshot) -> c.AnyCommand:
        seed = c.EvalSeed(seed=self._new_id(), now=self._now)
        return c.EvaluateNode(node_id=self._any(state, "nodes"), seed=seed)

    def _eligibility(self, state: Snapshot) -> c.AnyCommand:
        requested: Eligibility = self._pick((status.ELIGIBLE, status.INELIGIBLE, status.ELIGIBLE))
        return c.SetNodeEligibility(node_id=self._any(state, "nodes"), eligibility=requested, seed=self._seed())

    def _device(self, state: Snapshot) -> c.AnyCommand:
        node_id, seen = self._any(state, "nodes"), self._pick((None, None, 0, 1))
        return c.SetDeviceEligibility(node_id=node_id, device=DEVICE_ID, is_eligible=self._maybe(), mark_index=seen)

    def _drain(self, state: Snapshot) -> c.AnyCommand:
        strategy = DrainStrategy(started_at=self._now) if self._maybe() else None
        return c.SetNodeDrain(node_id=self._any(state, "nodes"), strategy=strategy, mark_eligible=self._maybe())

    def _node_events(self, state: Snapshot) -> c.AnyCommand:
        return c.AddNodeEvents(events={self._any(state, "nodes"): tuple(self._event() for _ in range(7))})

    def _delete_nodes(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteNodes(node_ids=(self._any(state, "nodes"),))

    def _evaluations(self, state: Snapshot) -> c.AnyCommand:
        return c.UpsertEvaluations(evaluations=tuple(self._evaluation(state) for _ in range(self._random.randrange(4))))

    def _delete_evaluations(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteEvaluations(
            eval_ids=self._some(sorted(state.evals.keys()), 4), alloc_ids=self._some(sorted(state.allocs.keys()), 4)
        )

    def _volumes(self, state: Snapshot) -> c.AnyCommand:
        volume = CSIVolume(id=self._pick(("data", "log")), plugin_id="plugin", namespace=self._pick(NAMESPACES))
        return c.UpsertVolumes(volumes=(volume,))

    def _delete_volumes(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteVolumes(keys=((self._pick(NAMESPACES), self._pick(("data", "log"))),))

    def _host_volume(self, state: Snapshot) -> c.AnyCommand:
        volume = HostVolume(
            id=self._pick(VOLUME_IDS),
            name=VOLUME_NAME,
            namespace=self._pick(NAMESPACES),
            node_id=self._any(state, "nodes"),
            state=self._pick((PENDING, UNAVAILABLE)),
            requested_capabilities=(WRITERS,),
        )
        return c.PutHostVolume(volume=volume, now=self._now, keeps_state=self._maybe())

    def _drop_host_volume(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteHostVolume(namespace=self._pick(NAMESPACES), id=self._any(state, "host_volumes"))

    def _drop_claim(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteHostVolumeClaim(id=self._any(state, "host_volume_claims"))

    def _staged(self, state: Snapshot) -> c.AnyCommand:
        """A staged part of a plan, often followed by the plan."""
        part, last = self._plan(state), self._plan(state)
        assert isinstance(part, c.ApplyPlan) and isinstance(last, c.ApplyPlan)
        plan_id = self._pick(("one", "two"))
        if self._maybe():
            self._following = replace(last, staged=plan_id, parts=self._pick((0, 1, 1, 1, 2)))
        return c.StagePlan(plan_id=plan_id, number=self._pick((0, 0, 0, 1)), plan=part.plan)

    def _drop_staged(self, state: Snapshot) -> c.AnyCommand:
        return c.DropStagedPlans(plan_id=self._pick(("", "one", "gone")))

    def _plan(self, state: Snapshot) -> c.AnyCommand:
        jobs = sorted(state.jobs.keys())
        namespace, job_id = self._pick(jobs) if jobs else ("default", "gone")
        versions = [version for *_, version in state.job_versions.keys_where("job", (namespace, job_id))] or [0]
        deployment = self._deployment(state, namespace, job_id) if self._maybe() else None
        mine = sorted(alloc.id for alloc in state.allocs_of_job(namespace, job_id))
        active = deployment.id if deployment else self._any(state, "deployments")
        plan = Plan(
            eval_id=self._any(state, "evals"),
            namespace=namespace,
            job_id=job_id,
            placements=tuple(
                self._placement(state, job_id, self._pick(versions), mine, active)
                for _ in range(self._random.randrange(5))
            ),
            in_place=tuple(self._in_place(one, self._pick(versions), active) for one in self._some(mine)),
            attributes=tuple(self._attributes(one) for one in self._some(mine)),
            stops=tuple(self._stop(one) for one in self._some(mine)),
            preemptions=tuple(
                AllocStop(id=one, node_id=NODES[0], desired_status="evict", preempted_by=self._new_id())
                for one in self._some(sorted(state.allocs.keys()), 1)
            ),
            deployment=deployment,
            deployment_updates=(self._deployment_update(state),) if self._maybe() else (),
            now=self._now,
        )
        follow_up = (self._evaluation(state, job_id, namespace),) if self._maybe() else ()
        return c.ApplyPlan(plan=plan, evaluations=follow_up)

    def _placement(self, state: Snapshot, job_id: str, version: int, mine: Sequence[str], active: str) -> Placement:
        group = self._pick(GROUPS) if self._random.randrange(6) == 0 else "web"
        health = AllocDeploymentStatus(canary=True) if self._random.randrange(3) == 0 else None
        nodes = sorted(state.nodes.keys()) or [NODES[0]]
        return Placement(
            id=self._new_id() if self._random.randrange(20) else self._any(state, "allocs"),
            name=f"{job_id}.{group}[{self._random.randrange(4)}]",
            task_group=group,
            node_id=self._pick(nodes) if self._random.randrange(20) else NODES[0],
            job_version=version if self._random.randrange(20) else 77,
            resources=replace(factories.allocated(factories.group(group)), shared=WITH_PORT),
            deployment_id=active if self._maybe() else "",
            deployment_status=health,
            previous_allocation=self._pick(mine) if mine and self._maybe() else "",
        )

    def _in_place(self, alloc_id: str, version: int, deployment: str) -> InPlaceUpdate:
        return InPlaceUpdate(
            id=alloc_id, node_id=NODES[0], job_version=version, deployment_id=deployment if self._maybe() else ""
        )

    def _attributes(self, alloc_id: str) -> AttributeUpdate:
        return AttributeUpdate(
            id=alloc_id,
            node_id=NODES[0],
            followup_eval_id=self._pick((None, "", self._new_id())),
            client_status=self._pick(
                (None, None, status.CLIENT_UNKNOWN, status.CLIENT_RUNNING, status.CLIENT_COMPLETE)
            ),
            reschedule_tracker=RescheduleTracker(last_reschedule="ok") if self._maybe() else None,
            desired_transition_clear=self._maybe(),
            append_state=(status.CLIENT_RUNNING, self._now) if self._maybe() else None,
            canary=self._pick((None, None, True, False)),
        )

    def _stop(self, alloc_id: str) -> AllocStop:
        return AllocStop(
            id=alloc_id,
            node_id=NODES[0],
            desired_status=self._pick(("stop", "stop", "run")) if self._random.randrange(15) else "evict",
            description="alloc not needed due to job update",
            client_status=self._pick(("", "", status.CLIENT_LOST, status.CLIENT_UNKNOWN)),
        )

    def _updates(self, state: Snapshot) -> c.AnyCommand:
        allocs = [state.allocs[alloc_id] for alloc_id in self._some(sorted(state.allocs.keys()), 4)]
        updates = tuple(self._update(alloc) for alloc in allocs)
        stranger = c.AllocUpdate(id=factories.number_id(98, kind=9), node_id=NODES[0], client_status="running")
        return c.UpdateAllocsFromClient(updates=(*updates, stranger), now=self._now)

    def _update(self, alloc: Allocation) -> c.AllocUpdate:
        event = TaskEvent(type="Started", time=self._now)
        healthy = self._pick((None, True, True, False))
        return c.AllocUpdate(
            id=alloc.id,
            node_id=alloc.node_id if self._random.randrange(10) else NODES[3],
            client_status=self._pick(CLIENT_STATUSES),
            client_description="reported",
            task_states={"web": TaskState(state="running", events=(event,))} if self._maybe() else {},
            deployment_status=AllocDeploymentStatus(healthy=healthy, timestamp=self._now) if self._maybe() else None,
        )

    def _transitions(self, state: Snapshot) -> c.AnyCommand:
        return c.SetDesiredTransitions(
            transitions={
                self._any(state, "allocs"): DesiredTransition(migrate=self._maybe(), reschedule=self._maybe())
            },
            evaluations=(self._evaluation(state),),
            now=self._now,
        )

    def _services(self, state: Snapshot) -> c.AnyCommand:
        allocs = [state.allocs[alloc_id] for alloc_id in self._some(sorted(state.allocs.keys()), 4)]
        services = [factories.service(alloc, self._pick(("api", "db"))) for alloc in allocs]
        return c.RegisterServices(services=(*services, *self._some((ServiceRegistration(service_name="odd"),), 1)))

    def _drop_services(self, state: Snapshot) -> c.AnyCommand:
        return c.DeregisterServices(ids=(self._any(state, "services"),))

    def _deployment(self, state: Snapshot, namespace: str, job_id: str) -> Deployment:
        job = state.jobs.get((namespace, job_id)) or factories.job(job_id, namespace=namespace)
        groups = {
            name: DeploymentState(desired_total=2, desired_canaries=canaries, progress_deadline=seconds(600))
            for name, canaries in (("web", 1), ("cache", 0))
        }
        return factories.deployment(job, id=self._new_id(), task_groups=groups)

    def _deployment_update(self, state: Snapshot) -> DeploymentUpdate:
        return DeploymentUpdate(deployment_id=self._any(state, "deployments"), status=self._pick(DEPLOYMENT_STATUSES))

    def _deployment_status(self, state: Snapshot) -> c.AnyCommand:
        return c.SetDeploymentStatus(
            update=self._deployment_update(state),
            evaluation=self._evaluation(state),
            job=self._job() if self._maybe() else None,
            now=self._now,
        )

    def _deployment_health(self, state: Snapshot) -> c.AnyCommand:
        return c.SetDeploymentAllocHealth(
            deployment_id=self._any(state, "deployments"),
            healthy=self._some(sorted(state.allocs.keys()), 1),
            unhealthy=self._some(sorted(state.allocs.keys()), 1),
            now=self._now,
            update=self._deployment_update(state) if self._maybe() else None,
        )

    def _promote(self, state: Snapshot) -> c.AnyCommand:
        return c.PromoteDeployment(
            deployment_id=self._any(state, "deployments"), groups=self._pick(((), ("web",), ("odd",))), now=self._now
        )

    def _delete_deployments(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteDeployments(deployment_ids=(self._any(state, "deployments"),))

    def _namespaces(self, state: Snapshot) -> c.AnyCommand:
        quota, name = self._pick(("", "team", "odd")), self._pick(("ops", "default", "spare", ""))
        return c.UpsertNamespaces(namespaces=(Namespace(name=name, quota=quota),))

    def _quotas(self, state: Snapshot) -> c.AnyCommand:
        resources = QuotaResources(cpu=self._pick((-1, 0, 4000)), storage=QuotaStorageResources(variables_mb=1))
        limits = (QuotaLimit(region="global", region_limit=resources),)
        return c.UpsertQuotas(quotas=(with_hashes(QuotaSpec(name=self._pick(("team", "spare", "")), limits=limits)),))

    def _delete_quotas(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteQuotas(names=(self._pick(("team", "spare", "odd")),))

    def _delete_namespaces(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteNamespaces(names=(self._pick(("ops", "default", "spare", "odd")),))

    def _pools(self, state: Snapshot) -> c.AnyCommand:
        return c.UpsertNodePools(pools=(NodePool(name=self._pick(("gpu", "spare", "all", ""))),))

    def _delete_pools(self, state: Snapshot) -> c.AnyCommand:
        return c.DeleteNodePools(names=(self._pick(("gpu", "spare", "default", "odd")),))

    def _scheduler(self, state: Snapshot) -> c.AnyCommand:
        configuration = SchedulerConfiguration(scheduler_algorithm=self._pick(("binpack", "spread")))
        return c.SetSchedulerConfiguration(configuration=configuration, check_index=self._pick((None, 0, 7)))

    def _autopilot(self, state: Snapshot) -> c.AnyCommand:
        configuration = AutopilotConfiguration(min_quorum=self._pick((0, 3)))
        return c.SetAutopilotConfiguration(configuration=configuration, check_index=self._pick((None, 0, 7)))

    def _launch(self, state: Snapshot) -> c.AnyCommand:
        return c.RecordPeriodicLaunch(namespace="default", job_id=self._pick(JOBS), launched_at=self._now)

    def _restore(self, state: Snapshot) -> c.AnyCommand:
        """A staged copy of the present state for the restore command that follows, or invalid bytes.

        What stays staged must not depend on the order of a snapshot's rows, which the hash seed decides.
        """
        data = b"".join(framed(encode(state))) if self._maybe() else b"nonsense"
        restore_id, digest = self._new_id(), sha256(data).hexdigest()
        self._following = c.FinishRestore(restore_id=restore_id, count=1, digest=digest)
        return c.StageRestore(restore_id=restore_id, number=0, data=data)

    def _schema(self, state: Snapshot) -> c.AnyCommand:
        return c.StoreSchema(driver="mock_driver", digest=self._pick("ab"), schema={"run_for": {"type": "string"}})
