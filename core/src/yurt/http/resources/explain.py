"""Explanations, Yurt's own routes: why an allocation is where it is, why a job is not placed, an evaluation made
again, and why a token may or may not do something.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.access import Actor, Need, NoToken, Scope, ShownToken
from yurt.access.needs import describe, is_scoped
from yurt.http import routes
from yurt.http.call import AUTHORITY, Call, json_answer, object_missing, prepare_rights, read_answer
from yurt.http.dispatcher import find_need
from yurt.http.errors import Refused
from yurt.http.lists import check_uuid
from yurt.http.resources.jobs import read_job
from yurt.rules.problems import multi_error
from yurt.sdk.errors import DENIED, PermissionDenied
from yurt.sdk.value import Value, replace
from yurt.server.views.acl import TokenRows, is_management
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows, EvaluationRows
from yurt.structs.job import Job

NO_PLACE = "no namespace is named: allowed means in some place; the object of a request decides which"


class WhyNotBody(Value):
    """POST /v1/yurt/job/why-not: a job as in a registration, or the id of a stored one."""

    job: Any = None
    job_id: str = ""
    namespace: str = ""
    node_id: str = ""
    """The full id of a node whose shortages for one more allocation of each group are requested."""


class ExplainAccessBody(Value):
    """POST /v1/yurt/acl/explain: the request and the token to explain."""

    accessor_id: str = ""
    """The token; "" for the caller."""
    action: str = ""
    """A request (`PUT /v1/jobs`) or a right in the words of the HTTP API (`submit-job`, `node:write`)."""
    namespace: str | None = None
    node_pool: str | None = None
    variable: str | None = None
    host_volume: str | None = None
    node: str | None = None


async def why(call: Call) -> web.Response:
    """GET /v1/yurt/allocation/:id/why."""
    alloc_id, explanations = check_uuid(call.part("id"), "alloc"), call.explanations
    allocations = call.view().of(AllocationRows)
    alloc = allocations.get(alloc_id)
    if alloc is None:
        return object_missing(call, "alloc not found", allocations.index)
    async with call.context.parsers:
        explanation = await explanations.why(alloc, seed=_seed(call))
    return read_answer(call, explanation, explanations.index)


async def why_not(call: Call) -> web.Response:
    """POST /v1/yurt/job/why-not: changes nothing."""
    body = await call.body(WhyNotBody)
    job, warnings = await _job(call, body)
    node_id, explanations = check_uuid(body.node_id, "node") if body.node_id else "", call.explanations
    async with call.context.parsers:
        explanation = await explanations.why_not(job, now=call.context.env.now(), seed=_seed(call), node_id=node_id)
    return json_answer(call, replace(explanation, warnings=warnings), index=explanations.index)


async def replay(call: Call) -> web.Response:
    """GET /v1/yurt/evaluation/:id/replay."""
    eval_id, explanations = check_uuid(call.part("id"), "eval"), call.explanations
    evaluations = call.view().of(EvaluationRows)
    evaluation = evaluations.get(eval_id)
    if evaluation is None:
        return object_missing(call, "eval not found", evaluations.index)
    async with call.context.parsers:
        result = await explanations.replay(evaluation)
    return read_answer(call, result, explanations.index)


async def _job(call: Call, body: WhyNotBody) -> tuple[Job, tuple[str, ...]]:
    """The job of the body, whose namespace counts; one that is not registered must be admissible."""
    warnings: tuple[str, ...] = ()
    if body.job is None:
        if not body.job_id:
            raise Refused(400, "Job or JobID must be specified")
        namespace = body.namespace or call.options.namespace
        job = call.view().of(JobRows).get((namespace, body.job_id))
        if job is None:
            raise Refused(404, f'job "{body.job_id}" in namespace "{namespace}" not found')
    else:
        job, read_warnings = await read_job(call, body.job)
        admission = await call.explanations.admission(job)
        if admission.errors:
            raise Refused(400, multi_error(admission.errors))
        warnings = (*read_warnings, *admission.warnings)
    if job.is_template:
        kind = "periodic" if job.periodic is not None else "parameterized"
        warnings = (*warnings, f'job "{job.id}" is {kind}: this is what one of its children would find now')
    return job, warnings


async def explain_access(call: Call) -> web.Response:
    """POST /v1/yurt/acl/explain: executes nothing. Only management may ask about other tokens.

    A caller without a token gets no hint: strangers need not learn what the policy `anonymous` allows.
    """
    call.need_acl()
    if isinstance(call.actor.caller, NoToken):
        raise Refused(403, DENIED)
    body = await call.body(ExplainAccessBody)
    need, scope, route = await _requested_access(call, body)
    actor, authority = _requested_actor(call, body.accessor_id), call.request.app[AUTHORITY]
    await prepare_rights(call.request, actor)
    decision, who = authority.decide(actor, need, scope), authority.identify(actor)
    is_open = is_scoped(need) and scope.namespace is None
    answer = {
        "Allowed": decision.is_allowed,
        "Need": describe(need),
        "Reason": decision.reason,
        "Rules": [
            {"Policy": rule.policy, "Line": rule.line, "Column": rule.column, "Text": rule.text}
            for rule in decision.rules
        ],
        "Route": "" if route is None else f"{'/'.join(route.methods)} {route.path}",
        "Scope": {
            "Namespace": scope.namespace, "NodePool": scope.node_pool, "Variable": scope.variable,
            "HostVolume": scope.host_volume, "Node": scope.node,
        },
        "Note": NO_PLACE if is_open else "",
        "Token": {
            "AccessorID": who.accessor_id, "Name": who.name, "Type": who.type, "Policies": list(who.policies),
            "ResolvedBy": who.resolved_by, "Problem": who.problem,
        },
    }  # fmt: skip
    return json_answer(call, answer)


async def _requested_access(call: Call, body: ExplainAccessBody) -> tuple[Need, Scope, routes.Route | None]:
    """What an action needs, where, and its route if it is a request."""
    method, _, url = body.action.partition(" ")
    if url.startswith("/"):
        route, route_scope = await find_need(call.request, method.upper(), url)
        need: Need = route.needs
    else:
        from yurt.access.need_texts import parse_need

        route, need = None, parse_need(body.action)
        route_scope = Scope(namespace=call.options.namespace if is_scoped(need) else None)
    overrides = {
        "namespace": body.namespace, "node_pool": body.node_pool, "variable": body.variable,
        "host_volume": body.host_volume, "node": body.node,
    }  # fmt: skip
    scope = route_scope._replace(**{name: text for name, text in overrides.items() if text is not None})
    return need, scope._replace(namespace=None) if scope.namespace == "*" else scope, route


def _requested_actor(call: Call, accessor_id: str) -> Actor:
    """The caller, or the holder of a token that the caller may see."""
    if not accessor_id:
        return call.actor
    accessor_id = check_uuid(accessor_id, "acl token").lower()
    token = call.view().of(TokenRows).get(accessor_id)
    if token is not None:
        return replace(call.actor, caller=ShownToken(secret_hash=token.secret_hash))
    if not is_management(call.access):
        raise PermissionDenied(DENIED)
    raise Refused(404, "ACL token not found: name it by its accessor id, which is not its secret")


def _seed(call: Call) -> int:
    return int(call.context.env.uuid().replace("-", ""), 16)
