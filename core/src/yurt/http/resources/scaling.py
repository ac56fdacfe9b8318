"""Scaling policies for autoscalers (`yurt.rules.scaling_policies`)."""

from __future__ import annotations

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.page import Pager, by_index
from yurt.http.answers import answer_slot, changed_view
from yurt.http.call import Call, object_missing, read_answer
from yurt.http.lists import list_answer, page_answer
from yurt.server.views import View
from yurt.server.views.jobs import JobRows
from yurt.structs.task import ScalingPolicy

STUB_FIELDS = ("ID", "Enabled", "Type", "Target", "CreateIndex", "ModifyIndex")


async def list_policies(call: Call) -> web.Response:
    """GET /v1/scaling/policies: optionally of one `job` or one `type`."""
    from yurt.rules.scaling_policies import policies_of

    options, job_id, kind = call.options, call.query.get("job", ""), call.query.get("type", "")

    def stub(policy: ScalingPolicy) -> dict[str, object]:
        wire = to_wire(policy)
        return {name: wire[name] for name in STUB_FIELDS}

    def index_of(view: View) -> int:
        jobs = view.of(JobRows)
        derived = call.context.derived
        return derived.index_of("scaling policies", jobs.index, lambda: jobs.has_policies, client_index=options.index)

    view, index = await changed_view(call, [JobRows.watched()], index_of)
    slot = answer_slot(call, view, (JobRows,), options.namespace)
    if slot is not None and (cached := slot.find()) is not None:
        # Not the index of the kept answer: it may be from before this server knew that the list had a row.
        return list_answer(call, cached.pieces, index, cached.next_token)
    listing = view.of(JobRows).of_namespace(options.namespace)
    policies: list[ScalingPolicy] = []
    async for part in call.turns.slices(listing.rows):
        selected = (job for job in listing.among(part) if job_id in ("", job.id))
        policies += [policy for job in selected for policy in policies_of(job) if policy.type.startswith(kind)]
    return await page_answer(call, Pager(policies, stub, key=by_index, options=options), index, slot=slot)


async def read(call: Call) -> web.Response:
    """GET /v1/scaling/policy/:id."""
    from yurt.rules.scaling_policies import policies_of

    policy_id = call.part("id")
    view, index = await changed_view(call, [JobRows.watched()], lambda view: view.of(JobRows).index)
    listing = view.of(JobRows).all()
    async for part in call.turns.slices(listing.rows):
        for policy in (policy for job in listing.among(part) for policy in policies_of(job)):
            if policy.id == policy_id:
                return read_answer(call, policy, policy.modify_index)
    return object_missing(call, "policy not found", index)
