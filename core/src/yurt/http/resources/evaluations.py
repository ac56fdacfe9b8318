"""Evaluations: lists, counts, one of them and its allocations."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.page import STEP, Stopwatch, compiled_filter
from yurt.api.row_texts import row_form
from yurt.api.stubs import alloc_stub
from yurt.http.answers import changed_view, list_rows, one_row
from yurt.http.call import Call, json_answer, read_answer
from yurt.http.errors import Refused
from yurt.http.lists import check_prefix, check_uuid
from yurt.http.query import flag
from yurt.runtime.turns import SLICE
from yurt.sdk.errors import Conflict, Reason
from yurt.sdk.value import Value, replace
from yurt.server.views import Listing, View
from yurt.server.views.scheduling import AllocationRows, EvaluationRows
from yurt.structs.evaluation import Evaluation, EvaluationStub

_STUB_FIELDS = EvaluationStub.__struct_fields__
RELATED_MAX = 100
DELETE_IDS_MAX = 7281


def _listing(call: Call) -> Callable[[View], Listing[Evaluation]]:
    """The evaluations that the query selects, its filter not applied."""
    options, status, job_id = call.options, call.query.get("status", ""), call.query.get("job", "")
    prefix = check_prefix(options.prefix, "eval")

    def is_selected(row: Evaluation) -> bool:
        return (
            row.id.startswith(prefix) and (not status or row.status == status) and (not job_id or row.job_id == job_id)
        )

    condition = is_selected if prefix or status or job_id else None
    return lambda view: view.of(EvaluationRows).of_namespace(options.namespace).where(condition)


async def list_evaluations(call: Call) -> web.Response:
    """GET /v1/evaluations."""
    if call.options.filter and (call.query.get("status") or call.query.get("job")):
        raise Refused(400, "Filter expression cannot be used with other filter parameters")
    return await list_rows(
        call, (EvaluationRows,), _listing(call), render=row_form(to_wire), namespace=call.options.namespace
    )


async def count(call: Call) -> web.Response:
    """GET /v1/evaluations/count."""
    listing = _listing(call)
    view, index = await changed_view(call, [EvaluationRows.watched()], lambda view: view.of(EvaluationRows).index)
    matching = await _filtered(call, listing(view), call.options.filter)
    return read_answer(call, {"Count": len(matching)}, index)


async def _filtered(call: Call, listing: Listing[Evaluation], expression: str) -> list[Evaluation]:
    """The evaluations of a listing that pass the filter expression, if there is one."""
    keep = compiled_filter(expression) if expression else None
    matching: list[Evaluation] = []
    async for part in call.turns.slices(listing.rows, SLICE if keep is None else STEP):
        if keep is None:
            matching += listing.among(part)
            continue
        watch = Stopwatch()
        for row in listing.among(part):
            if watch.is_over:
                await call.turns.next()
                watch = Stopwatch()
            if keep(to_wire(row)):
                matching.append(row)
    return matching


class EvaluationsDeleteBody(Value):
    """DELETE /v1/evaluations: ids, or a filter expression; that may also be in the query."""

    eval_ids: tuple[str, ...] = ()
    filter: str = ""


async def delete(call: Call) -> web.Response:
    """DELETE /v1/evaluations: those that have ended and whose allocations have ended too, while the broker is paused.

    `apply` decides both. Here they are looked at first, for answers before anything is deleted.
    """
    body = await call.body(EvaluationsDeleteBody, optional=True)
    expression = body.filter or call.options.filter
    if body.eval_ids and expression:
        raise Refused(400, "evals cannot be deleted by both ID and filter")
    if not body.eval_ids and not expression:
        raise Refused(400, "evals must be deleted by either ID or filter")
    if len(body.eval_ids) > DELETE_IDS_MAX:
        raise Refused(400, f"request includes {len(body.eval_ids)} evaluation IDs, must be {DELETE_IDS_MAX} or fewer")
    if body.eval_ids:
        call.access.name_object("evaluation", ",".join(body.eval_ids))
    eval_ids = list(dict.fromkeys(check_uuid(text, "eval") for text in body.eval_ids))
    rows = call.view().of(EvaluationRows)
    if why := rows.why_none_is_deletable:
        raise Conflict(why, reason=Reason.EVAL_BROKER_ENABLED)
    if eval_ids:
        return await _delete_ids(call, eval_ids)
    deletable = rows.of_namespace(call.options.namespace).where(lambda row: not rows.why_it_stays(row))
    ended = await _filtered(call, deletable, expression)
    index, deleted = await call.operations.evaluations.delete([row.id for row in ended], is_strict=False)
    return json_answer(call, {"Count": deleted}, index=index)


async def _delete_ids(call: Call, eval_ids: list[str]) -> web.Response:
    """Delete exactly these, or none when one must stay; one that becomes active meanwhile stops the deletion."""
    rows = call.view().of(EvaluationRows)
    for eval_id in eval_ids:
        row = rows.get(eval_id)
        if row is None:
            raise Refused(404, f"eval not found: {eval_id}")
        if reason := rows.why_it_stays(row):
            raise Refused(400, f"eval {eval_id} is not safe to delete: {reason}")
    index, _ = await call.operations.evaluations.delete(eval_ids, is_strict=True)
    return json_answer(call, {"Count": len(eval_ids)}, index=index)


async def read(call: Call) -> web.Response:
    """GET /v1/evaluation/:id."""
    eval_id, related = check_uuid(call.part("id"), "eval"), flag(call.query, "related")

    def render(row: Evaluation, view: View) -> Evaluation:
        return replace(row, related_evals=related_evals(view.of(EvaluationRows), row))

    form = render if related else row_form(to_wire)
    return await one_row(call, EvaluationRows, eval_id, render=form, missing="eval not found")


def related_evals(rows: EvaluationRows, evaluation: Evaluation) -> tuple[EvaluationStub, ...]:
    """Every evaluation that this one leads to or comes from, by id."""
    seen: dict[str, Evaluation] = {evaluation.id: evaluation}
    queue = [evaluation]
    while queue and len(seen) < RELATED_MAX:
        current = queue.pop()
        linked = (current.previous_eval, current.next_eval, current.blocked_eval)
        for eval_id in linked:
            row = rows.get(eval_id) if eval_id and eval_id not in seen else None
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
    return await list_rows(
        call, (AllocationRows,), lambda view: view.of(AllocationRows).each_where("eval", eval_id),
        render=row_form(alloc_stub),
    )  # fmt: skip
