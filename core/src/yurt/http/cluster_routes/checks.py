"""Checks of the cluster as a whole: readiness for an upgrade, and capacity in use.

Nomad's Enterprise edition reports its use under a licence; here the same route answers the present figures.
"""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any, Final

from aiohttp import web

from yurt import NOMAD_VERSION
from yurt.api.encode import encode_builtins
from yurt.api.stubs import job_stub, node_stub
from yurt.api.times import rfc3339
from yurt.http.call import Call, json_answer
from yurt.server.views.cluster import NodeRows
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.predicates import is_terminal

OLDEST_FOR_IDENTITIES: Final = (1, 7)
"""Agents of this version and newer get tokens of Vault by the identity of the task."""
VAULT_IDENTITY: Final = "vault_"


async def vault_identities(call: Call) -> web.Response:
    """GET /v1/operator/upgrade-check/vault-workload-identity."""
    view = call.view()
    jobs, nodes = view.of(JobRows).all(), view.of(NodeRows).all()
    without_identity: list[dict[str, Any]] = []
    async for part in call.turns.slices(jobs.rows):
        without_identity += [job_stub(job, None) for job in jobs.among(part) if not job.stop and _lacks_identity(job)]
    outdated: list[dict[str, Any]] = []
    async for chunk in call.turns.slices(nodes.rows):
        outdated += [node_stub(node) for node in nodes.among(chunk) if _is_outdated(node)]
    return json_answer(
        call, {"JobsWithoutVaultIdentity": without_identity, "OutdatedNodes": outdated, "VaultTokens": []}
    )


def _lacks_identity(job: Job) -> bool:
    """Whether a task needs a Vault token but has no identity to obtain it with."""
    return any(
        task.vault is not None and not any(each.name.startswith(VAULT_IDENTITY) for each in task.identities)
        for group in job.task_groups
        for task in group.tasks
    )


def _is_outdated(node: Node) -> bool:
    parts = node.attributes.get("nomad.version", "").split(".")[:2]
    return not all(part.isdigit() for part in parts) or tuple(map(int, parts)) < OLDEST_FOR_IDENTITIES


async def utilization(call: Call) -> web.Response:
    """POST /v1/operator/utilization: the figures of this moment as a document, in base64 as Nomad's bundle."""
    view = call.view()
    total: Counter[str] = Counter()
    nodes, allocs = view.of(NodeRows).all(), view.of(AllocationRows).all()
    async for chunk in call.turns.slices(nodes.rows):
        for node in nodes.among(chunk):
            _count_node(total, node)
    async for part in call.turns.slices(allocs.rows):
        for alloc in allocs.among(part):
            if not is_terminal(alloc):
                tasks = alloc.allocated_resources.tasks.values()
                total["allocations"] += 1
                total["allocated_cpu_mhz"] += sum(task.cpu.cpu_shares for task in tasks)
                total["allocated_memory_mb"] += sum(task.memory.memory_mb for task in tasks)
    document = {
        "Jobs": view.of(JobRows).count(),
        "Servers": sum(each.region == call.agent.region for each in call.cluster.members()),
        "Time": rfc3339(call.context.env.now()),
        "Version": NOMAD_VERSION,
        "YurtVersion": call.agent.version,
        **{_field(name): total[name] for name in FIGURES},
    }
    bundle = base64.b64encode(encode_builtins(document)).decode()
    return json_answer(call, {"Bundle": bundle, "LastIndex": view.index, "RequestTime": 0})


FIGURES: Final = (
    "nodes", "ready_nodes", "allocations", "cpu_mhz", "memory_mb", "allocated_cpu_mhz", "allocated_memory_mb",
    "devices",
)  # fmt: skip


def _count_node(total: Counter[str], node: Node) -> None:
    has = node.node_resources
    total["nodes"] += 1
    total["ready_nodes"] += node.status == "ready"
    total["cpu_mhz"] += has.cpu.cpu_shares
    total["memory_mb"] += has.memory.memory_mb
    total["devices"] += sum(len(group.instances) for group in has.devices)


def _field(name: str) -> str:
    return "".join({"cpu": "CPU", "mb": "MB", "mhz": "MHz"}.get(word, word.capitalize()) for word in name.split("_"))
