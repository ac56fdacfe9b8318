"""Searching for objects by the beginning of their ids, and fuzzily by a part of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any, Final

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability, NodePoolCapability, VariableCapability
from yurt.http import routes
from yurt.http.call import Call, read_answer
from yurt.http.errors import Refused
from yurt.http.routes import ROW
from yurt.sdk.value import Value
from yurt.state.csi_plugins import csi_plugins
from yurt.state.store import Snapshot

MATCHES_MAX = 20
FUZZY_TEXT_MIN = 2
CONTEXTS = (
    "allocs", "deployment", "evals", "jobs", "nodes", "node_pools", "namespaces", "quotas", "recommendations",
    "scaling_policy", "plugins", "volumes", "vars", "all",
)  # fmt: skip
_ID_AND_NAME: Final = attrgetter("namespace", "id", "name")
_UUID_CONTEXTS = ("allocs", "deployment", "evals", "nodes")


class SearchBody(Value):
    """PUT /v1/search."""

    prefix: str = ""
    context: str = ""


class FuzzySearchBody(Value):
    """PUT /v1/search/fuzzy."""

    text: str = ""
    context: str = ""


def _rows(state: Snapshot, context: str) -> Iterable[tuple[str, str, str]]:
    """(namespace, id, name) of all objects of a context; the namespace is "" where they have none."""
    match context:
        case "allocs":
            return map(_ID_AND_NAME, state.allocs.values())
        case "deployment":
            return ((row.namespace, row.id, "") for row in state.deployments.values())
        case "evals":
            return ((row.namespace, row.id, "") for row in state.evals.values())
        case "jobs":
            return map(_ID_AND_NAME, state.jobs.values())
        case "nodes":
            return (("", row.id, row.name) for row in state.nodes.values())
        case "node_pools":
            return (("", row.name, row.name) for row in state.node_pools.values())
        case "namespaces":
            return (("", row.name, row.name) for row in state.namespaces.values())
        case "plugins":
            return (("", plugin_id, "") for plugin_id in csi_plugins(state))
        case "volumes":
            return map(_ID_AND_NAME, state.table("csi_volumes").values())
        case "vars":
            return ((row.namespace, row.path, "") for row in state.variables.values())
    return ()


def _contexts(context: str) -> Iterable[str]:
    if context not in ("", *CONTEXTS):
        known = f"{', '.join(CONTEXTS[:-1])} or {CONTEXTS[-1]}"
        raise Refused(500, f'there is no context "{context[:64]}"; it must be one of {known}')
    return CONTEXTS[:-1] if context in ("", "all") else (context,)


async def _found(
    call: Call, state: Snapshot, context: str, is_hit: Callable[[str, str], bool]
) -> tuple[list[tuple[str, str]], bool]:
    """(id, name) of the first of those of a context that fit, by id, and whether there are more."""
    first: list[tuple[str, str]] = []
    sees, is_cut = call.options.sees, False
    async for part in call.server.writer.turns.slices(_rows(state, context)):
        first.extend(
            (row_id, name)
            for namespace, row_id, name in part
            if is_hit(row_id, name) and (not namespace or sees(namespace))
        )
        if len(first) > MATCHES_MAX:
            first, is_cut = sorted(first)[:MATCHES_MAX], True
    return sorted(first), is_cut


async def search(call: Call) -> web.Response:
    """PUT /v1/search."""
    body = await call.body(SearchBody)
    state = call.read_state()
    matches: dict[str, list[str]] = {}
    truncations: dict[str, bool] = {}
    for context in _contexts(body.context):
        prefix = body.prefix.lower() if context in _UUID_CONTEXTS else body.prefix
        found, is_cut = await _found(call, state, context, partial(_has_prefix, prefix))
        if found or context == body.context:
            matches[context] = [row_id for row_id, _ in found]
        truncations[context] = is_cut
    answer = {"Index": state.index, "Matches": matches, "Truncations": truncations}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, state.index)


async def fuzzy(call: Call) -> web.Response:
    """PUT /v1/search/fuzzy."""
    body = await call.body(FuzzySearchBody)
    text = body.text.lower()
    if len(text) < FUZZY_TEXT_MIN:
        raise Refused(500, f"fuzzy search query must be at least {FUZZY_TEXT_MIN} characters, got {len(text)}")
    state = call.read_state()
    matches: dict[str, list[dict[str, Any]]] = {}
    truncations: dict[str, bool] = {}
    for context in _contexts(body.context):
        fits = _begins_with if context in ("deployment", "evals") else _has_in_it
        found, is_cut = await _found(call, state, context, partial(fits, text))
        if found:
            matches[context] = [_fuzzy_match(context, row_id, name) for row_id, name in dict(found).items()]
        truncations[context] = is_cut
    answer = {"Index": state.index, "Matches": matches, "Truncations": truncations}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, state.index)


def _has_prefix(prefix: str, row_id: str, _name: str) -> bool:
    return row_id.startswith(prefix)


def _begins_with(text: str, row_id: str, name: str) -> bool:
    return (name or row_id).lower().startswith(text)


def _has_in_it(text: str, row_id: str, name: str) -> bool:
    return text in (name or row_id).lower()


def _fuzzy_match(context: str, row_id: str, name: str) -> dict[str, Any]:
    """Objects with a name of their own are shown by it, with the id as scope."""
    if context in ("allocs", "nodes"):
        return {"ID": name, "Scope": [row_id]}
    return {"ID": row_id, "Scope": None}


SEARCH = needs.each_row(
    needs.any_of(
        needs.namespace(
            Capability.READ_JOB, Capability.LIST_JOBS, Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME
        ),
        needs.namespace(Capability.HOST_VOLUME_READ, Capability.LIST_SCALING_POLICIES),
        needs.ANY_CAPABILITY,
        needs.variable(VariableCapability.LIST),
        needs.node_pool(NodePoolCapability.READ),
        needs.NODE_READ,
        needs.PLUGIN_LIST,
    )
)

ROUTES = (
    routes.write("/v1/search", search, needs=SEARCH, scope=ROW, from_nodes=True),
    routes.write("/v1/search/fuzzy", fuzzy, needs=SEARCH, scope=ROW, from_nodes=True),
)
