"""The state of a cluster from its API, also Nomad's: nodes, jobs, allocations, what waits, namespaces, quotas, pools.

Only GET requests are sent. The state is not of one moment, since each list is read by itself; what changes meanwhile
may be missing on one side. Fields that the scheduler does not read are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from yurt.api.decode import decode_job, decode_value
from yurt.cli.errors import ApiError, CliError, Unreachable
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot, Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace, SchedulerConfiguration
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.quota import QuotaSpec, with_hashes

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient

T = TypeVar("T", bound=msgspec.Struct)

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
NOT_OFFERED: Final = frozenset({404, 405, 501})
"""Answers of an agent that has no such route: Nomad's community edition has no quotas."""
RIGHTS: Final = {
    "/v1/nodes": "node:read", "/v1/node/": "node:read", "/v1/jobs": "list-jobs in each namespace",
    "/v1/job/": "read-job in each namespace", "/v1/allocations": "read-job in each namespace",
    "/v1/evaluations": "read-job in each namespace", "/v1/quotas": "quota:read",
    "/v1/operator": "operator:read", "/v1/namespaces": "a right in each namespace",
}  # fmt: skip


def read_cluster(api: ApiClient) -> Snapshot:
    """The state of the cluster behind an agent; raises CliError that names what could not be read, and why."""
    return _ClusterReader(api).read()


class _ClusterReader:
    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self) -> Snapshot:
        nodes = [self._node(stub) for stub in self._list("/v1/nodes")]
        every = {"namespace": "*"}
        jobs = {
            job.key: job
            for stub in self._list("/v1/jobs", every)
            if (job := self._job(str(stub.get("ID")), str(stub.get("Namespace") or "default"))) is not None
        }
        stubs = self._list("/v1/allocations", every | {"resources": "true", "task_states": "false"})
        allocs = [self._alloc(stub, jobs) for stub in stubs]
        waiting = [
            self._evaluation(stub)
            for state in (status.EVAL_BLOCKED, status.EVAL_PENDING)
            for stub in self._list("/v1/evaluations", every | {"status": state})
        ]
        indexes = [[row.modify_index for row in rows] for rows in (nodes, jobs.values(), allocs, waiting)]
        index = max((index for each in indexes for index in each), default=0)
        edit = Snapshot.empty().edit(index + 1)
        for document in self._list("/v1/namespaces"):
            namespace = self._value(document, Namespace, "/v1/namespaces")
            edit.put(Tables.namespaces, namespace.name, namespace)
        for spec in self._quotas():
            edit.put(Tables.quotas, spec.name, spec)
        for pool in self._pools():
            edit.put(Tables.node_pools, pool.name, pool)
        edit.put(Tables.scheduler_configurations, "", self._scheduler())
        for node in nodes:
            edit.put(Tables.nodes, node.id, node)
        for job in jobs.values():
            edit.put(Tables.jobs, job.key, job)
            edit.put(Tables.job_versions, (*job.key, job.version), job)
        for alloc in allocs:
            edit.put(Tables.allocs, alloc.id, alloc)
        for evaluation in waiting:
            edit.put(Tables.evals, evaluation.id, evaluation)
        return edit.commit()

    def _get(self, path: str, query: Mapping[str, str] | None = None, *, is_optional: bool = False) -> Any:
        try:
            return self._api.get(path, query)
        except ApiError as error:
            if is_optional and error.status in NOT_OFFERED:
                return []
            what = f"{self._api.connection.address}: GET {path}: {error}"
            right = next((right for start, right in RIGHTS.items() if path.startswith(start)), "")
            if error.status == 403 and right:
                raise CliError(f"{what}; -from needs a token with {right}") from None
            raise CliError(what) from None
        except Unreachable as error:
            raise CliError(str(error).replace("-address or NOMAD_ADDR", "-from")) from None

    def _list(
        self, path: str, query: Mapping[str, str] | None = None, *, is_optional: bool = False
    ) -> list[Mapping[str, Any]]:
        found = self._get(path, query, is_optional=is_optional)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise CliError(
                f"{self._api.connection.address}: GET {path}: the answer is not a list, as Nomad's API has it"
            )
        return found

    def _node(self, stub: Mapping[str, Any]) -> Node:
        from yurt.fsm.node_class import computed_class

        path = f"/v1/node/{stub.get('ID')}"
        found = self._get(path)
        kept = _kept(found, NODE_KEYS)
        kept["Drivers"] = {
            name: {"Detected": bool(driver.get("Detected")), "Healthy": bool(driver.get("Healthy"))}
            for name, driver in (found.get("Drivers") or {}).items()
        }
        kept["HostVolumes"] = {
            name: _kept(volume, ("Name", "Path", "ReadOnly", "ID"))
            for name, volume in (found.get("HostVolumes") or {}).items()
        }
        node = self._value(kept, Node, path)
        return replace(node, computed_class=computed_class(node))

    def _job(self, job_id: str, namespace: str) -> Job | None:
        from yurt.cli.api.lookup import api_path

        path = api_path("job", job_id)
        try:
            found = self._api.get(path, {"namespace": namespace})
        except ApiError as error:
            if error.status == 404:
                return None
            found = self._get(path, {"namespace": namespace})
        try:
            job, _ = decode_job(found)
        except Invalid as error:
            raise CliError(f"{self._api.connection.address}: GET {path}: {error}") from None
        return replace(
            job,
            stop=bool(found.get("Stop")),
            status=str(found.get("Status") or "pending"),
            version=int(found.get("Version") or 0),
            parent_id=str(found.get("ParentID") or ""),
            dispatched=bool(found.get("Dispatched")),
            submit_time=UnixNano(int(found.get("SubmitTime") or 0)),
            create_index=int(found.get("CreateIndex") or 0),
            modify_index=int(found.get("ModifyIndex") or 0),
            job_modify_index=int(found.get("JobModifyIndex") or 0),
        )

    def _alloc(self, stub: Mapping[str, Any], jobs: Mapping[tuple[str, str], Job]) -> Allocation:
        alloc = self._value(_kept(stub, ALLOC_KEYS), Allocation, "/v1/allocations")
        return replace(alloc, job=jobs.get((alloc.namespace, alloc.job_id)))

    def _evaluation(self, stub: Mapping[str, Any]) -> Evaluation:
        return self._value(_kept(stub, EVAL_KEYS), Evaluation, "/v1/evaluations")

    def _pools(self) -> Iterable[Any]:
        from yurt.api.node_pools import decode_node_pool

        path = "/v1/node/pools"
        for document in self._list(path, is_optional=True):
            try:
                yield decode_node_pool({name: value for name, value in document.items() if name != "Idle"})[0]
            except Invalid as error:
                raise CliError(f"{self._api.connection.address}: GET {path}: {error}") from None

    def _scheduler(self) -> SchedulerConfiguration:
        path = "/v1/operator/scheduler/configuration"
        found = self._get(path)
        return self._value(found.get("SchedulerConfig") or {}, SchedulerConfiguration, path)

    def _quotas(self) -> Iterable[QuotaSpec]:
        """The quotas; none where the agent has no such route. Hashes of limits are those of Yurt."""
        path = "/v1/quotas"
        for document in self._list(path, is_optional=True):
            limits = [
                {name: value for name, value in limit.items() if name != "Hash"}
                for limit in document.get("Limits") or ()
            ]
            yield with_hashes(self._value({**document, "Limits": limits}, QuotaSpec, path))

    def _value(self, document: Any, cls: type[T], path: str) -> T:
        try:
            return decode_value(document, cls, name=cls.__name__)[0]
        except Invalid as error:
            raise CliError(f"{self._api.connection.address}: GET {path}: {error}") from None


def _kept(found: Any, keys: Iterable[str]) -> dict[str, Any]:
    return {key: found[key] for key in keys if found.get(key) is not None}
