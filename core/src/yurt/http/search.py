"""Searching for objects by the beginning of their ids, and fuzzily by a part of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aiohttp import web

from yurt.http.call import Call, read_answer
from yurt.http.errors import Refused
from yurt.http.routing import route
from yurt.sdk.value import Value
from yurt.state.csi_plugins import csi_plugins
from yurt.state.store import Snapshot

MATCHES_MAX = 20
FUZZY_TEXT_MIN = 2
CONTEXTS = (
    "allocs", "deployment", "evals", "jobs", "nodes", "node_pools", "namespaces", "quotas", "recommendations",
    "scaling_policy", "plugins", "volumes", "vars", "all",
)  # fmt: skip
_UUID_CONTEXTS = ("allocs", "deployment", "evals", "nodes")


class SearchBody(Value):
    """PUT /v1/search."""

    prefix: str = ""
    context: str = ""


class FuzzySearchBody(Value):
    """PUT /v1/search/fuzzy."""

    text: str = ""
    context: str = ""


def _rows(state: Snapshot, context: str, sees: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """(id, name) of all objects of a context."""
    match context:
        case "allocs":
            yield from ((row.id, row.name) for row in state.allocs.values() if sees(row.namespace))
        case "deployment":
            yield from ((row.id, "") for row in state.deployments.values() if sees(row.namespace))
        case "evals":
            yield from ((row.id, "") for row in state.evals.values() if sees(row.namespace))
        case "jobs":
            yield from ((row.id, row.name) for row in state.jobs.values() if sees(row.namespace))
        case "nodes":
            yield from ((row.id, row.name) for row in state.nodes.values())
        case "node_pools":
            yield from ((row.name, row.name) for row in state.node_pools.values())
        case "namespaces":
            yield from ((row.name, row.name) for row in state.namespaces.values())
        case "plugins":
            yield from ((plugin_id, "") for plugin_id in csi_plugins(state))
        case "volumes":
            yield from ((row.id, row.name) for row in state.table("csi_volumes").values() if sees(row.namespace))
        case "vars":
            yield from ((row.path, "") for row in state.variables.values() if sees(row.namespace))
        case _:
            return


def _contexts(context: str) -> Iterable[str]:
    if context not in ("", *CONTEXTS):
        known = f"{', '.join(CONTEXTS[:-1])} or {CONTEXTS[-1]}"
        raise Refused(500, f'there is no context "{context[:64]}"; it must be one of {known}')
    return CONTEXTS[:-1] if context in ("", "all") else (context,)


def _limited(found: Iterable[Any]) -> tuple[list[Any], bool]:
    ordered = sorted(found, key=str)
    return ordered[:MATCHES_MAX], len(ordered) > MATCHES_MAX


async def search(call: Call) -> web.Response:
    """PUT /v1/search."""
    body = await call.body(SearchBody)
    state = call.read_state()
    matches: dict[str, list[str]] = {}
    truncations: dict[str, bool] = {}
    for context in _contexts(body.context):
        prefix = body.prefix.lower() if context in _UUID_CONTEXTS else body.prefix
        rows = _rows(state, context, call.options.sees)
        found, is_cut = _limited(row_id for row_id, _ in rows if row_id.startswith(prefix))
        if found or context == body.context:
            matches[context] = found
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
        names = dict(_rows(state, context, call.options.sees))
        is_hit = str.startswith if context in ("deployment", "evals") else str.__contains__
        found, is_cut = _limited(row_id for row_id, name in names.items() if is_hit((name or row_id).lower(), text))
        if found:
            matches[context] = [_fuzzy_match(context, row_id, names[row_id]) for row_id in found]
        truncations[context] = is_cut
    answer = {"Index": state.index, "Matches": matches, "Truncations": truncations}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, state.index)


def _fuzzy_match(context: str, row_id: str, name: str) -> dict[str, Any]:
    """Objects with a name of their own are shown by it, with the id as scope."""
    if context in ("allocs", "nodes"):
        return {"ID": name, "Scope": [row_id]}
    return {"ID": row_id, "Scope": None}


ROUTES = (
    route("/v1/search", write=search),
    route("/v1/search/fuzzy", write=fuzzy),
)
