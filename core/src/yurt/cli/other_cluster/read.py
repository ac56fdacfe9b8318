"""Reads the state of a Yurt or Nomad cluster over its API: nodes, jobs, their allocations and evaluations, and limits.

Only GET requests are sent. The state is not of one moment, since each list is read by itself; what changes meanwhile
may be missing on one side. Fields that the scheduler does not read are left out. Every field that it reads is checked:
its type by decoding, its amount by `bounds`, a job by the rules of registration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yurt.api.decode import decode_job
from yurt.cli.errors import ApiError
from yurt.cli.files.finding_positions import one_line
from yurt.cli.other_cluster.answers import SINGLE_MAX, Answers, present_fields, without
from yurt.cli.other_cluster.bounds import bound_problems, node_problems
from yurt.cli.other_cluster.rights import missing_rights
from yurt.cli.terminal.text import printable
from yurt.sdk.value import UnixNano, Value, replace
from yurt.state import Snapshot, Tables
from yurt.state.schema import TableSchema
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace, SchedulerConfiguration
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.quota import QuotaSpec, with_hashes
from yurt.structs.rules import RULES_VERSION

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient
    from yurt.structs.cluster import NodePool

JobKey = tuple[str, str]

COUNT_MAX: Final = 100_000
"""The allocations that one job of another cluster may want; servers allow 50,000 unless configured."""
NODE_KEYS: Final = (
    "ID", "Name", "Datacenter", "NodePool", "NodeClass", "Attributes", "Meta", "NodeResources", "ReservedResources",
    "Status", "SchedulingEligibility", "ComputedClass", "NodeMaxAllocs", "CreateIndex", "ModifyIndex",
)  # fmt: skip
ALLOC_KEYS: Final = (
    "ID", "Namespace", "EvalID", "Name", "NodeID", "NodeName", "JobID", "TaskGroup", "AllocatedResources",
    "DesiredStatus", "ClientStatus", "CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime",
)  # fmt: skip
EVAL_KEYS: Final = (
    "ID", "Namespace", "JobID", "Priority", "Type", "TriggeredBy", "Status", "JobModifyIndex", "CreateIndex",
    "ModifyIndex", "CreateTime", "ModifyTime",
)  # fmt: skip
DEPLOYMENT_KEYS: Final = (
    "ID", "Namespace", "JobID", "JobVersion", "JobModifyIndex", "JobSpecModifyIndex", "JobCreateIndex", "Status",
    "CreateIndex", "ModifyIndex",
)  # fmt: skip
ROLLOUT_KEYS: Final = (
    "PlacedCanaries", "AutoRevert", "AutoPromote", "Promoted", "DesiredCanaries", "DesiredTotal", "PlacedAllocs",
    "HealthyAllocs", "UnhealthyAllocs",
)  # fmt: skip
EVERY: Final = {"namespace": "*"}
UNUSABLE_SHOWN: Final = 5
QUOTAS_MAX: Final = 10_000


class ReadCluster(NamedTuple):
    """A cluster's state as far as its agent shows it, and what may be missing in it."""

    state: Snapshot
    warnings: tuple[str, ...]


class _JobFacts(Value):
    """What servers say of a job in addition to its declaration."""

    stop: bool = False
    status: str = "pending"
    version: int = 0
    parent_id: str = ""
    dispatched: bool = False
    submit_time: UnixNano = UnixNano(0)
    create_index: int = 0
    modify_index: int = 0
    job_modify_index: int = 0


class _AllocFacts(Value):
    """What of an allocation in a list names its job."""

    job_version: int = 0


_FACT_KEYS: Final = (
    "Stop", "Status", "Version", "ParentID", "Dispatched", "SubmitTime", "CreateIndex", "ModifyIndex", "JobModifyIndex",
)  # fmt: skip


def read_cluster(api: ApiClient) -> ReadCluster:
    """The state of the cluster behind an agent; raises CliError that names what could not be read, and why."""
    return _ClusterReader(Answers(api)).read()


def read_regions(api: ApiClient) -> list[str]:
    """The names of its regions."""
    answers, path = Answers(api), "/v1/regions"
    found = answers.need(path)
    if not isinstance(found, list):
        raise answers.wrong(path, "the answer is not a list of names, as Nomad's API has it")
    return [answers.text({"region": name}, "region", path) for name in found]


class _ClusterReader:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._unusable: dict[JobKey, str] = {}
        """Why jobs are not scheduled."""
        self._unreadable: Counter[str] = Counter()
        """Jobs that the token may list, but not read, by namespace."""
        self._unreadable_versions = 0
        """Allocations whose own version of their job could not be read."""
        self._unusable_quotas: dict[str, str] = {}
        """Why quotas limit nothing."""
        self._quota_sums: tuple[str, ...] = ()

    def read(self) -> ReadCluster:
        """Read all lists, and what of each list is read one by one."""
        nodes = self._nodes()
        jobs = self._jobs()
        stubs = self._answers.rows("/v1/allocations", EVERY | {"resources": "true", "task_states": "false"})
        deployments = self._deployments(jobs)
        versions = _Versions(jobs)
        allocs = [self._alloc(stub, versions, deployments) for stub in stubs]
        self._answers.unique((alloc.id for alloc in allocs), "/v1/allocations")
        waiting = self._waiting(jobs)
        namespaces, quotas, pools = self._namespaces(), self._quotas(), self._pools()
        lists: tuple[Iterable[Any], ...] = (nodes, jobs.values(), allocs, waiting, deployments.values())
        index = max((row.modify_index for rows in lists for row in rows), default=0)
        edit = Snapshot.empty().edit(index + 1)
        tables: tuple[tuple[TableSchema[Any, Any], Mapping[Any, Any]], ...] = (
            (Tables.namespaces, {row.name: row for row in namespaces}),
            (Tables.quotas, {row.name: row for row in quotas}),
            (Tables.node_pools, {row.name: row for row in pools}),
            (Tables.scheduler_configurations, {"": self._scheduler()}),
            (Tables.nodes, {row.id: row for row in nodes}),
            (Tables.jobs, jobs),
            (Tables.job_versions, versions.rows()),
            (Tables.deployments, {row.id: row for row in deployments.values()}),
            (Tables.allocs, {row.id: row for row in allocs}),
            (Tables.evals, {row.id: row for row in waiting}),
        )
        for table, rows in tables:
            for key, row in rows.items():
                edit.put(table, key, row)
        state = edit.commit(RULES_VERSION)
        shown = state.quotas.keys() | self._unusable_quotas.keys()
        return ReadCluster(state, (*missing_rights(self._answers, state, shown), *self._left_out()))

    # Nodes.

    def _nodes(self) -> list[Node]:
        path = "/v1/nodes"
        ids = [self._answers.text(stub, "ID", path) for stub in self._answers.rows(path, most=SINGLE_MAX)]
        self._answers.unique(ids, path)
        return [self._node(node_id) for node_id in ids]

    def _node(self, node_id: str) -> Node:
        from yurt.cli.api.lookup import api_path
        from yurt.fsm.node_class import computed_class

        path = api_path("node", node_id)
        found = self._answers.document(path)
        fields = present_fields(found, NODE_KEYS)
        fields["Drivers"] = {
            name: {"Detected": driver.get("Detected") is True, "Healthy": driver.get("Healthy") is True}
            for name, driver in self._answers.mapping(found, "Drivers", path).items()
        }
        fields["HostVolumes"] = {
            name: present_fields(volume, ("Name", "Path", "ReadOnly", "ID"))
            for name, volume in self._answers.mapping(found, "HostVolumes", path).items()
        }
        fields["DeviceMarks"] = {
            name: present_fields(mark, ("Kind",))
            for name, mark in self._answers.mapping(found, "DeviceMarks", path).items()
        }
        node = self._answers.value(_with_plain_health(fields), Node, path)
        for name in ("ID", "Name", "Datacenter"):
            self._answers.text(found, name, path)
        if node.id != node_id:
            raise self._answers.wrong(path, f"the answer has the ID {node.id}")
        self._refuse(node_problems(node), path)
        return replace(node, computed_class=computed_class(node))

    # Jobs.

    def _jobs(self) -> dict[JobKey, Job]:
        path = "/v1/jobs"
        keys = [
            (self._answers.text(stub, "Namespace", path, "default"), self._answers.text(stub, "ID", path))
            for stub in self._answers.rows(path, EVERY, most=SINGLE_MAX)
        ]
        self._answers.unique(keys, path)
        found = (self._job(*key) for key in keys)
        return {job.key: job for job in found if job is not None}

    def _job(self, namespace: str, job_id: str) -> Job | None:
        """A job of the list; None when it has gone since, or may not be read."""
        from yurt.cli.api.lookup import api_path

        path = api_path("job", job_id)
        found, is_hidden = self._found(path, namespace)
        self._unreadable[namespace] += is_hidden
        if found is None:
            return None
        job = self._decoded_job(found, path, (namespace, job_id))
        problem = _job_problem(job)
        if problem:
            if not job.stop and job.status != status.JOB_DEAD:
                self._unusable[job.key] = problem
            return replace(job, task_groups=(), stop=True)
        return job

    def _found(self, path: str, namespace: str) -> tuple[Mapping[str, Any] | None, bool]:
        """An object of a list, None when it has gone since or may not be read; and whether it may not be read."""
        try:
            return self._answers.object(self._answers.get(path, {"namespace": namespace}), path), False
        except ApiError as error:
            if error.status not in (403, 404):
                raise self._answers.refused(path, error) from None
            return None, error.status == 403

    def _decoded_job(self, found: Mapping[str, Any], path: str, key: JobKey) -> Job:
        facts = self._answers.value(present_fields(found, _FACT_KEYS), _JobFacts, path, "Job")
        self._refuse(bound_problems(facts, "Job"), path)
        job = self._answers.checked(path, lambda: decode_job(found)[0])
        if job.key != key:
            raise self._answers.wrong(path, f"the answer has job {job.id} of namespace {job.namespace}")
        return replace(job, **{name: getattr(facts, name) for name in facts.__struct_fields__})

    def _left_out(self) -> Iterator[str]:
        """Which jobs are missing or not scheduled."""
        for namespace, number in sorted((+self._unreadable).items()):
            yield (
                f"{number} {'jobs are' if number > 1 else 'job is'} missing of namespace {printable(namespace)}, in "
                "which the token has list-jobs and not read-job"
            )
        if self._unreadable_versions:
            number = self._unreadable_versions
            what = f"{number} older versions of jobs" if number > 1 else "1 older version of a job"
            yield f"{what} may not be read (needed: read-job): the newest version counts for its allocations"
        quotas = [
            f"quota {printable(name)} limits nothing here, since Yurt would refuse it: {one_line(problem)}"
            for name, problem in sorted(self._unusable_quotas.items())
        ]
        yield from _shortened(quotas, "more quotas limit nothing for such reasons")
        yield from _shortened([one_line(each) for each in self._quota_sums], "more guarantees exceed those above them")
        jobs = [
            f"job {printable('/'.join(key))} is not scheduled, and its allocations only stay, since Yurt would "
            f"refuse it: {one_line(problem)}"
            for key, problem in sorted(self._unusable.items())
        ]
        yield from _shortened(jobs, "more jobs are not scheduled for such reasons")

    # Allocations and blocked evaluations.

    def _alloc(
        self, stub: Mapping[str, Any], versions: _Versions, deployments: Mapping[JobKey, Deployment]
    ) -> Allocation:
        path = "/v1/allocations"
        alloc = self._answers.value(present_fields(stub, ALLOC_KEYS), Allocation, path)
        for name in ("ID", "NodeID", "JobID", "TaskGroup"):
            self._answers.text(stub, name, path)
        version = self._answers.value(
            present_fields(stub, ("JobVersion",)), _AllocFacts, path, "Allocation"
        ).job_version
        self._refuse(bound_problems(alloc, f"Allocation {alloc.id}"), path)
        job = versions.of(alloc, version, self._job_of_alloc)
        deployment = deployments.get((alloc.namespace, alloc.job_id))
        is_own = deployment is not None and deployment.job_version == version and stub.get("DeploymentStatus")
        return replace(alloc, job=job, deployment_id=deployment.id if deployment is not None and is_own else "")

    def _job_of_alloc(self, alloc: Allocation) -> Job | None:
        """The version of the job that an allocation has; None when the allocation has gone since."""
        from yurt.cli.api.lookup import api_path

        path = api_path("allocation", alloc.id)
        found, is_hidden = self._found(path, alloc.namespace)
        self._unreadable_versions += is_hidden
        document = None if found is None else found.get("Job")
        if document is None:
            return None
        return self._decoded_job(self._answers.object(document, path, "Job"), path, (alloc.namespace, alloc.job_id))

    def _deployments(self, jobs: Mapping[JobKey, Job]) -> dict[JobKey, Deployment]:
        """The newest deployment of each job."""
        path = "/v1/deployments"
        newest: dict[JobKey, Deployment] = {}
        for document in self._answers.rows(path, EVERY, is_optional=True):
            fields = present_fields(document, DEPLOYMENT_KEYS)
            fields["TaskGroups"] = {
                name: present_fields(group, ROLLOUT_KEYS)
                for name, group in self._answers.mapping(document, "TaskGroups", path).items()
            }
            self._answers.text(document, "ID", path)
            found = self._answers.value(fields, Deployment, path)
            self._refuse(bound_problems(found, f"Deployment {found.id}"), path)
            key = (found.namespace, found.job_id)
            if key in jobs and (key not in newest or newest[key].create_index < found.create_index):
                newest[key] = found
        self._answers.unique((each.id for each in newest.values()), path)
        return newest

    def _waiting(self, jobs: Mapping[JobKey, Job]) -> list[Evaluation]:
        path = "/v1/evaluations"
        found: list[Evaluation] = []
        for state in (status.EVAL_BLOCKED, status.EVAL_PENDING):
            for stub in self._answers.rows(path, EVERY | {"status": state}):
                self._answers.text(stub, "ID", path)
                evaluation = self._answers.value(present_fields(stub, EVAL_KEYS), Evaluation, path)
                self._refuse(bound_problems(evaluation, f"Evaluation {evaluation.id}"), path)
                if evaluation.status == state and (evaluation.namespace, evaluation.job_id) in jobs:
                    found.append(evaluation)
        self._answers.unique((each.id for each in found), path)
        return found

    # The rest.

    def _namespaces(self) -> list[Namespace]:
        path = "/v1/namespaces"
        documents = self._answers.rows(path)
        self._answers.unique((self._answers.text(each, "Name", path) for each in documents), path)
        return [self._answers.value(without(each, "Idle"), Namespace, path) for each in documents]

    def _pools(self) -> list[NodePool]:
        from yurt.api.node_pools import decode_node_pool

        path = "/v1/node/pools"
        documents = self._answers.rows(path, is_optional=True)
        self._answers.unique((self._answers.text(each, "Name", path) for each in documents), path)
        pools: list[NodePool] = []
        for document in documents:
            pool, problems = self._answers.checked(path, partial(decode_node_pool, without(document, "Idle")))
            self._refuse((f"node pool {pool.name}: {each}" for each in problems), path)
            self._refuse(bound_problems(pool, f"NodePool {pool.name}"), path)
            pools.append(pool)
        return pools

    def _scheduler(self) -> SchedulerConfiguration:
        path = "/v1/operator/scheduler/configuration"
        found = self._answers.document(path)
        config = self._answers.object(found.get("SchedulerConfig") or {}, path, "SchedulerConfig")
        return self._answers.value(config, SchedulerConfiguration, path)

    def _quotas(self) -> list[QuotaSpec]:
        """The usable quotas; none where the agent has no such route. Hashes of limits are those of Yurt."""
        from yurt.rules.validation.quota import quota_problems
        from yurt.rules.validation.quota_tree import forest_problems

        path = "/v1/quotas"
        documents = self._answers.rows(path, most=QUOTAS_MAX, is_optional=True)
        self._answers.unique((self._answers.text(each, "Name", path) for each in documents), path)
        found: dict[str, QuotaSpec] = {}
        for document in documents:
            plain = [without(limit, "Hash") for limit in self._answers.objects(document, "Limits", path)]
            spec = with_hashes(self._answers.value({**document, "Limits": plain}, QuotaSpec, path))
            problem = next(quota_problems(spec), "")
            if problem:
                self._unusable_quotas[spec.name] = problem
            else:
                found[spec.name] = spec
        detached, self._quota_sums = forest_problems(found)
        self._unusable_quotas |= detached
        return [spec for name, spec in found.items() if name not in detached]

    def _refuse(self, problems: Iterable[str], path: str) -> None:
        """Raise the first problem."""
        problem = next(iter(problems), "")
        if problem:
            raise self._answers.wrong(path, problem)


def _shortened(warnings: Sequence[str], rest: str) -> Iterator[str]:
    """The first warnings, and the number of the others."""
    yield from warnings[:UNUSABLE_SHOWN]
    if len(warnings) > UNUSABLE_SHOWN:
        yield f"{len(warnings) - UNUSABLE_SHOWN} {rest}"


class _Versions:
    """The versions of jobs that allocations have: the newest is in the list of jobs, others come with an allocation."""

    def __init__(self, jobs: Mapping[JobKey, Job]) -> None:
        self._jobs = jobs
        self._versions: dict[tuple[JobKey, int, bool], Job | None] = {}
        """By job and version; the last part is True for a job of this name that was purged before."""

    def of(self, alloc: Allocation, version: int, read: Callable[[Allocation], Job | None]) -> Job | None:
        """The version of an allocation, read once for all that have it; the newest one for an ended allocation.

        The newest one counts also where the allocation has gone since it was listed.
        """
        key = (alloc.namespace, alloc.job_id)
        newest = self._jobs.get(key)
        is_purged = newest is not None and alloc.create_index < newest.create_index
        has_newest = newest is not None and newest.version == version and not is_purged
        if has_newest or alloc.client_status in status.CLIENT_TERMINAL:
            return newest
        version_key = (key, version, is_purged)
        if version_key not in self._versions:
            self._versions[version_key] = read(alloc) or newest
        return self._versions[version_key]

    def rows(self) -> dict[tuple[str, str, int], Job]:
        """All versions of the jobs that exist, by their keys."""
        found = {
            (*key, version): job
            for (key, version, is_purged), job in self._versions.items()
            if job is not None and job.version == version and key in self._jobs and not is_purged
        }
        return found | {(*job.key, job.version): job for job in self._jobs.values()}


def _job_problem(job: Job) -> str:
    """Why registration would refuse a job."""
    from yurt.rules.bounds import bound_problems as too_many
    from yurt.rules.validation.job import validate_job
    from yurt.structs.predicates import total_count_problem

    problems = too_many(job)
    if problems:
        return problems[0]
    count = total_count_problem(job, COUNT_MAX)
    if count:
        return count
    return next(iter(validate_job(job)[0]), "")


def _with_plain_health(fields: dict[str, Any]) -> dict[str, Any]:
    """A node with the states of its devices alone: Yurt's agents report their history with times as texts."""
    resources = fields.get("NodeResources")
    if not isinstance(resources, dict) or not isinstance(resources.get("Devices"), list):
        return fields
    plain = [_device_with_plain_health(each) for each in resources["Devices"]]
    return fields | {"NodeResources": {**resources, "Devices": plain}}


def _device_with_plain_health(device: Any) -> Any:
    instances = device.get("Instances") if isinstance(device, dict) else None
    if not isinstance(instances, list):
        return device
    return {**device, "Instances": [_instance_with_plain_health(each) for each in instances]}


def _instance_with_plain_health(instance: Any) -> Any:
    if not isinstance(instance, dict) or not isinstance(instance.get("Health"), dict):
        return instance
    return {**instance, "Health": present_fields(instance["Health"], ("State",))}
