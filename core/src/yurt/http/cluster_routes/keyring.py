"""Root keys: listed, rotated, removed."""

from __future__ import annotations

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.http.call import Call, json_answer, loaded_view
from yurt.http.errors import Refused
from yurt.http.query import flag, number
from yurt.sdk.errors import Conflict, Invalid
from yurt.server.views.operator import RootKeyRows

ALGORITHMS = ("", "aes256-gcm")


async def keys(call: Call) -> web.Response:
    """GET /v1/operator/keyring/keys; with `-dev` there is none before the first signature or encryption.

    `Keyring` and `KeyringProblem` are those of the server that answers: each has files of its own.
    """
    rows = loaded_view(call).of(RootKeyRows)
    root_keys = rows.oldest_first()
    wrappings = await call.context.env.in_thread(call.operations.root_keys.wrappings, [key.key_id for key in root_keys])
    shown = [
        {**to_wire(key), "Keyring": wrappings[key.key_id].keyring, "KeyringProblem": wrappings[key.key_id].problem}
        for key in root_keys
    ]
    return json_answer(call, shown, index=rows.index)


async def rotate(call: Call) -> web.Response:
    """PUT /v1/operator/keyring/rotate."""
    algorithm = call.query.get("algo", "")
    if algorithm not in ALGORITHMS:
        raise Refused(400, f'algorithm "{algorithm[:32]}" is not supported; "aes256-gcm" is')
    is_full = flag(call.query, "full")
    made = await call.operations.root_keys.rotate(is_full=is_full, publish_time=number(call.query, "publish_time") or 0)
    return json_answer(call, {"Key": made, "Index": made.modify_index}, index=made.modify_index)


async def remove(call: Call) -> web.Response:
    """DELETE /v1/operator/keyring/key/:id."""
    is_forced = flag(call.query, "force", code=422)
    try:
        index = await call.operations.root_keys.remove(call.part("id"), is_forced=is_forced)
    except (Conflict, Invalid) as error:
        raise Refused(500, str(error)) from None
    return json_answer(call, {}, index=index)
