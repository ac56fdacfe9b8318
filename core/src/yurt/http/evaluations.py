"""Evaluations: lists, counts, one of them and its allocations."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.api.encode import to_wire
from yurt.api.filter import compile_filter
from yurt.api.page import STEP, Stopwatch
from yurt.api.stubs import alloc_stub
from yurt.fsm.evals import why_evaluation_stays
from yurt.http import routes
from yurt.http.call import Call, changed_state, json_answer, read_answer
from yurt.http.errors import Refused
from yurt.http.lists import check_prefix, check_uuid, list_answer, object_answer
from yurt.http.query import flag
from yurt.http.routes import QUERY, ROW
from yurt.runtime.turns import SLICE
from yurt.sdk.value import Value, replace
from yurt.state.store import Snapshot
from yurt.structs.commands import DeleteEvaluations
from yurt.structs.evaluation import Evaluation, EvaluationStub

_STUB_FIELDS = EvaluationStub.__struct_fields__
RELATED_MAX = 100
DELETE_IDS_MAX = 7281
DELETE_BATCH = 200
"""Evaluations deleted by one command: it bounds for how long its application holds the loop."""


def _wanted(call: Call) -> Callable[[Evaluation], bool]:
    """Which evaluations the query asks for, but for its filter."""
    options, status, job_id = call.options, call.query.get("status", ""), call.query.get("job", "")
    prefix = check_prefix(options.prefix, "eval")

    def is_wanted(row: Evaluation) -> bool:
        return (
            options.sees(row.namespace)
            and row.id.startswith(prefix)
            and (not status or row.status == status)
            and (not job_id or row.job_id == job_id)
        )

    return is_wanted


async def list_evaluations(call: Call) -> web.Response:
    """GET /v1/evaluations."""
    if call.options.filter and (call.query.get("status") or call.query.get("job")):
        raise Refused(400, "Filter expression cannot be used with other filter parameters")
    return await list_answer(
        call, ("evals",), lambda state: state.evals.values(), wanted=_wanted(call), render=lambda _: to_wire
    )


async def count(call: Call) -> web.Response:
    """GET /v1/evaluations/count."""
    state, index = await changed_state(call, [("evals",)], lambda s: s.evals.index)
    found = await _filtered(call, state, _wanted(call), call.options.filter)
    return read_answer(call, {"Count": len(found)}, index)


async def _filtered(
    call: Call, state: Snapshot, wanted: Callable[[Evaluation], bool], expression: str
) -> list[Evaluation]:
    """The evaluations that are wanted and that a filter expression, if there is one, keeps."""
    keep = compile_filter(expression) if expression else None
    found: list[Evaluation] = []
    turns = call.server.writer.turns
    async for part in turns.slices(state.evals.values(), SLICE if keep is None else STEP):
        if keep is None:
            found += filter(wanted, part)
            continue
        watch = Stopwatch()
        for row in part:
            if watch.is_over:
                await turns.next()
                watch = Stopwatch()
            if wanted(row) and keep(to_wire(row)):
                found.append(row)
    return found


class EvaluationsDeleteBody(Value):
    """DELETE /v1/evaluations: ids, or a filter expression; that may also be in the query."""

    eval_ids: tuple[str, ...] = ()
    filter: str = ""


async def delete(call: Call) -> web.Response:
    """DELETE /v1/evaluations: those that have ended and whose allocations have ended too."""
    body = await call.body(EvaluationsDeleteBody, optional=True)
    expression = body.filter or call.options.filter
    if body.eval_ids and expression:
        raise Refused(400, "evals cannot be deleted by both ID and filter")
    if not body.eval_ids and not expression:
        raise Refused(400, "evals must be deleted by either ID or filter")
    if len(body.eval_ids) > DELETE_IDS_MAX:
        raise Refused(400, f"request includes {len(body.eval_ids)} evaluation IDs, must be {DELETE_IDS_MAX} or fewer")
    if body.eval_ids:
        return await _delete_ids(call, list(dict.fromkeys(check_uuid(text, "eval") for text in body.eval_ids)))
    state = call.read_state()
    ended = await _filtered(call, state, lambda row: _is_deletable(state, call, row), expression)
    index, deleted = state.index, 0
    async for part in call.server.writer.turns.slices([row.id for row in ended], DELETE_BATCH):
        done = await call.server.propose(DeleteEvaluations(eval_ids=tuple(part)))
        index, deleted = done.index, deleted + sum(eval_id not in done.state.evals for eval_id in part)
    return json_answer(call, {"Count": deleted}, index=index)


async def _delete_ids(call: Call, eval_ids: list[str]) -> web.Response:
    """Delete exactly these, or none when one must stay; one that comes to life meanwhile refuses what is left."""
    state, index = call.read_state(), 0
    for eval_id in eval_ids:
        row = state.evals.get(eval_id)
        if row is None:
            raise Refused(404, f"eval not found: {eval_id}")
        if reason := why_evaluation_stays(state, row):
            raise Refused(400, f"eval {eval_id} is not safe to delete: {reason}")
    async for part in call.server.writer.turns.slices(eval_ids, DELETE_BATCH):
        command = DeleteEvaluations(eval_ids=tuple(part), is_strict=True)
        index = (await call.server.propose(command)).index
    return json_answer(call, {"Count": len(eval_ids)}, index=index)


def _is_deletable(state: Snapshot, call: Call, row: Evaluation) -> bool:
    return call.options.sees(row.namespace) and not why_evaluation_stays(state, row)


async def read(call: Call) -> web.Response:
    """GET /v1/evaluation/:id."""
    eval_id, related = check_uuid(call.part("id"), "eval"), flag(call.query, "related")

    def render(row: Evaluation, state: Snapshot) -> Evaluation:
        return replace(row, related_evals=related_evals(state, row)) if related else row

    return await object_answer(call, "evals", eval_id, render=render, missing="eval not found")


def related_evals(state: Snapshot, evaluation: Evaluation) -> tuple[EvaluationStub, ...]:
    """Every evaluation that this one leads to or comes from, by id."""
    seen: dict[str, Evaluation] = {evaluation.id: evaluation}
    queue = [evaluation]
    while queue and len(seen) < RELATED_MAX:
        current = queue.pop()
        linked = (current.previous_eval, current.next_eval, current.blocked_eval)
        for eval_id in linked:
            row = state.evals.get(eval_id) if eval_id and eval_id not in seen else None
            if row is not None:
                seen[eval_id] = row
                queue.append(row)
    del seen[evaluation.id]
    return tuple(
        EvaluationStub(**{name: getattr(row, name) for name in _STUB_FIELDS}) for _, row in sorted(seen.items())
    )


async def allocations(call: Call) -> web.Response:
    """GET /v1/evaluation/:id/allocations."""
    eval_id = check_uuid(call.part("id"), "eval")
    return await list_answer(
        call, ("allocs",), lambda state: state.allocs.each_where("eval", eval_id), render=lambda _: alloc_stub
    )


READ_JOB = needs.namespace(Capability.READ_JOB)

ROUTES = (
    routes.get("/v1/evaluations", list_evaluations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.delete("/v1/evaluations", delete, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/evaluations/count", count, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/evaluation/{id}", read, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/evaluation/{id}/allocations", allocations, needs=READ_JOB, scope=ROW, from_nodes=True),
)
