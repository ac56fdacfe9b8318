"""Scaling policies for autoscalers: the `scaling` blocks of the groups of all jobs that are not stopped.

Policies have no table of their own. A policy's id follows from its job and group, so it is the same on every server and
after every restart, and outlives changes of the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.api.encode import to_wire
from yurt.api.page import Pager, by_index
from yurt.http import routes
from yurt.http.answers import changed_view
from yurt.http.call import Call, object_missing, read_answer
from yurt.http.lists import page_answer
from yurt.http.routes import QUERY, ROW
from yurt.sdk.value import replace
from yurt.server.views.jobs import JobRows
from yurt.structs.job import Job
from yurt.structs.task import ScalingPolicy

HORIZONTAL = "horizontal"
STUB_FIELDS = ("ID", "Enabled", "Type", "Target", "CreateIndex", "ModifyIndex")


def policy_id(namespace: str, job_id: str, group: str) -> str:
    """The id of a group's policy."""
    key = "\0".join((namespace, job_id, group)).encode()
    return str(UUID(bytes=hashlib.blake2b(key, digest_size=16, person=b"scaling policy").digest(), version=4))


def policies_of(job: Job) -> Iterator[ScalingPolicy]:
    """The policies of a job's groups; a stopped job has none."""
    for group in job.task_groups:
        if group.scaling is not None and not job.stop:
            yield replace(
                group.scaling,
                id=policy_id(job.namespace, job.id, group.name),
                namespace=job.namespace,
                type=group.scaling.type or HORIZONTAL,
                target={"Namespace": job.namespace, "Job": job.id, "Group": group.name},
                create_index=job.create_index,
                modify_index=job.job_modify_index,
            )


async def list_policies(call: Call) -> web.Response:
    """GET /v1/scaling/policies: of one `job` or one `type` where that is asked for."""
    options, job_id, kind = call.options, call.query.get("job", ""), call.query.get("type", "")

    def stub(policy: ScalingPolicy) -> dict[str, object]:
        wire = to_wire(policy)
        return {name: wire[name] for name in STUB_FIELDS}

    view, index = await changed_view(call, [JobRows.watched()], lambda view: view.of(JobRows).index)
    listing = view.of(JobRows).of_namespace(options.namespace)
    found: list[ScalingPolicy] = []
    async for part in call.turns.slices(listing.rows):
        wanted = (job for job in listing.among(part) if job_id in ("", job.id))
        found += [policy for job in wanted for policy in policies_of(job) if policy.type.startswith(kind)]
    return await page_answer(call, Pager(found, stub, key=by_index, options=options), index)


async def read(call: Call) -> web.Response:
    """GET /v1/scaling/policy/:id."""
    wanted = call.part("id")
    view, index = await changed_view(call, [JobRows.watched()], lambda view: view.of(JobRows).index)
    listing = view.of(JobRows).all()
    async for part in call.turns.slices(listing.rows):
        for policy in (policy for job in listing.among(part) for policy in policies_of(job)):
            if policy.id == wanted:
                return read_answer(call, policy, policy.modify_index)
    return object_missing(call, "policy not found", index)


LIST_POLICIES = needs.any_of(
    needs.namespace(Capability.LIST_SCALING_POLICIES),
    needs.all_of(needs.namespace(Capability.LIST_JOBS), needs.namespace(Capability.READ_JOB)),
)
READ_POLICY = needs.any_of(
    needs.namespace(Capability.READ_SCALING_POLICY),
    needs.all_of(needs.namespace(Capability.LIST_JOBS), needs.namespace(Capability.READ_JOB)),
)

ROUTES = (
    routes.get("/v1/scaling/policies", list_policies, needs=LIST_POLICIES, scope=QUERY, from_nodes=True),
    routes.get("/v1/scaling/policy/{id}", read, needs=READ_POLICY, scope=ROW, from_nodes=True),
)
