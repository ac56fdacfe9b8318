"""The keyring of gossip, which has no keys: mutual TLS protects what servers tell each other.

Nomad's servers encrypt their gossip with a key that all of them share. Here gossip goes over the same connections as
all else between agents, and `tls { rpc = true }` protects it; so there is nothing to install, use or remove.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused

NO_KEYS: Final = (
    "gossip has no key of its own here: mutual TLS protects all connections between agents. "
    "Make certificates with `yurt tls ca create` and `yurt tls cert create`, and set tls { rpc = true } "
    "in every agent's configuration"
)


async def list_keys(call: Call) -> web.Response:
    """GET /v1/agent/keyring/list: no key, and what each server has instead."""
    _need_server(call)
    names = [member.name for member in call.cluster.members() if member.region == call.agent.region]
    return json_answer(call, {"Keys": {}, "Messages": dict.fromkeys(names, NO_KEYS), "NumNodes": len(names)})


async def change_keys(call: Call) -> web.Response:
    """PUT /v1/agent/keyring/install, use and remove."""
    _need_server(call)
    raise Refused(400, NO_KEYS)


def _need_server(call: Call) -> None:
    if not call.has_server:
        raise Refused(501, "Invalid method")
