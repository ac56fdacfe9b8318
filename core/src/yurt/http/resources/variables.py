"""Variables: metadata in lists, items one by one; written against an index or under a lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from yurt.api.encode import encode_json, to_wire
from yurt.http.answers import list_rows, one_row
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused
from yurt.http.query import number
from yurt.sdk.value import Duration, Value, no_entries, replace
from yurt.server.resources.variables import VariableConflict, checked_lock, metadata_of
from yurt.server.views import Listing, View
from yurt.server.views.variables import VariableRows
from yurt.structs.variable import EncryptedVariable, Variable, VariableMetadata

ACQUIRE, RENEW, RELEASE = "lock-acquire", "lock-renew", "lock-release"
Shown = Variable | VariableMetadata


class LockBody(Value):
    """The lock to acquire, renew or release; durations that are null are the server's defaults."""

    id: str = ""
    ttl: Duration | None = None
    lock_delay: Duration | None = None


class VariableBody(Value):
    """PUT /v1/var/:path."""

    namespace: str = ""
    path: str = ""
    items: Mapping[str, str] = no_entries()
    lock: LockBody | None = None


async def list_variables(call: Call) -> web.Response:
    """GET /v1/vars."""
    options = call.options

    def listing(view: View) -> Listing[EncryptedVariable]:
        return (
            view.of(VariableRows).of_namespace(options.namespace).where(lambda row: row.path.startswith(options.prefix))
        )

    return await list_rows(
        call, (VariableRows,), listing, render=lambda _: lambda row: to_wire(metadata_of(row)),
        key=lambda row: (row.namespace, row.path),
    )  # fmt: skip


async def read(call: Call) -> web.Response:
    """GET /v1/var/:path."""
    key = (call.options.namespace, _path(call))
    variables = call.operations.variables
    return await one_row(
        call, VariableRows, key, render=lambda row, _: variables.open(row), missing="variable not found"
    )


def _path(call: Call) -> str:
    path = call.part("path")
    if not path:
        raise Refused(400, "missing variable path")
    return path


async def write(call: Call) -> web.Response:
    """PUT /v1/var/:path: store items, or acquire, renew or release a lock."""
    path, body = _path(call), await call.body(VariableBody)
    if body.path and body.path != path:
        raise Refused(400, f'variable path "{body.path[:128]}" does not match request path')
    operation = _operation(call)
    namespace = call.options.namespace if "namespace" in call.query else body.namespace or call.options.namespace
    return await _answered(call, _OPERATIONS[operation](call, namespace, replace(body, path=path)))


def _operation(call: Call) -> str:
    operations = [name for name in (ACQUIRE, RENEW, RELEASE) if name in call.query]
    if len(operations) > 1:
        raise Refused(400, "multiple lock operations")
    if operations and "cas" in call.query:
        raise Refused(400, "CAS can't be used with lock operations")
    return operations[0] if operations else ""


async def _put(call: Call, namespace: str, body: VariableBody) -> Shown:
    lock_id = body.lock.id if body.lock is not None else ""
    return await call.operations.variables.put(
        namespace, body.path, body.items, check_index=_check_index(call), lock_id=lock_id
    )


async def _acquire(call: Call, namespace: str, body: VariableBody) -> Shown:
    request = body.lock or LockBody()
    lock = checked_lock(request.ttl, request.lock_delay)
    return await call.operations.variables.acquire(namespace, body.path, replace(lock, id=request.id), body.items)


async def _renew(call: Call, namespace: str, body: VariableBody) -> Shown:
    return await call.operations.variables.renew(namespace, body.path, _lock_id(body))


async def _release(call: Call, namespace: str, body: VariableBody) -> Shown:
    return await call.operations.variables.release(namespace, body.path, _lock_id(body))


_OPERATIONS: Mapping[str, Callable[[Call, str, VariableBody], Awaitable[Shown]]] = {
    "": _put,
    ACQUIRE: _acquire,
    RENEW: _renew,
    RELEASE: _release,
}


def _lock_id(body: VariableBody) -> str:
    if body.lock is None or not body.lock.id:
        raise Refused(400, "missing lock ID")
    return body.lock.id


def _check_index(call: Call) -> int | None:
    index = number(call.query, "cas")
    if index is not None and index < 0:
        raise Refused(400, f'Failed to parse value of "cas" ("{index}") as an index')
    return index


async def _answered(call: Call, work: Awaitable[Shown]) -> web.Response:
    """The written variable, or 409 with the present one; without items for a caller who may not read them."""
    try:
        done = await work
    except VariableConflict as error:
        return _conflict(call, error)
    return json_answer(call, done, index=done.modify_index)


def _conflict(call: Call, error: VariableConflict) -> web.Response:
    current = error.current or Variable(namespace=call.options.namespace, path=_path(call))
    return web.Response(
        body=encode_json(current, pretty=call.options.pretty),
        status=409,
        content_type="application/json",
        headers={"X-Nomad-Index": str(max(error.index, 1)), "X-Yurt-Conflict": str(error)},
    )


async def delete(call: Call) -> web.Response:
    """DELETE /v1/var/:path."""
    path = _path(call)
    try:
        index = await call.operations.variables.delete(call.options.namespace, path, check_index=_check_index(call))
    except VariableConflict as error:
        return _conflict(call, error)
    return web.Response(status=204, headers={"X-Nomad-Index": str(index)})
