"""Searching for objects by the beginning of their ids, and fuzzily by a part of their names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from aiohttp import web

from yurt.api.uuids import uuid_prefix
from yurt.http.call import Call, read_answer
from yurt.http.errors import Refused
from yurt.rules.problems import near_hint
from yurt.sdk.value import Value
from yurt.server.views import View
from yurt.server.views.search import CONTEXTS as SEARCHED
from yurt.server.views.search import SHOWN_BY_NAME, WITH_UUIDS, SearchView

MATCHES_MAX = 20
_OF_NOMAD: Final = (
    "allocs", "deployment", "evals", "jobs", "nodes", "node_pools", "namespaces", "quotas", "recommendations",
    "scaling_policy", "plugins", "volumes", "host_volumes", "vars",
)  # fmt: skip
"""The contexts in the order in which Nomad names them; plugins follow from other tables, and some are always empty."""
CONTEXTS: Final = (*_OF_NOMAD, *(name for name in SEARCHED if name not in _OF_NOMAD))
ALL: Final = "all"


class Hit(NamedTuple):
    """A matching object; namespace and name are "" where it has none."""

    id: str
    name: str
    namespace: str


class SearchBody(Value):
    """PUT /v1/search."""

    prefix: str = ""
    context: str = ""


class FuzzySearchBody(Value):
    """PUT /v1/search/fuzzy."""

    text: str = ""
    context: str = ""


def _contexts(context: str) -> Iterable[str]:
    if context not in ("", ALL, *CONTEXTS):
        names, hint = f"{', '.join(CONTEXTS)} or {ALL}", near_hint(context, (*CONTEXTS, ALL))
        raise Refused(500, f'there is no context "{context[:64]}"; it must be one of {names}{hint}')
    return CONTEXTS if context in ("", ALL) else (context,)


async def _hits(
    call: Call,
    view: View,
    context: str,
    is_hit: Callable[[str, str], bool],
    *,
    order: Callable[[Hit], Any] = tuple,
    matches_max: int = MATCHES_MAX,
) -> tuple[list[Hit], bool]:
    """The first matches of a context, by id or in another order, and whether there are more."""
    first: list[Hit] = []
    sees, is_cut = call.options.sees, False
    listing = view.of(SearchView).of_context(context)
    async for part in call.turns.slices(listing.rows):
        first.extend(
            Hit(row_id, name, namespace)
            for namespace, row_id, name in listing.among(part)
            if is_hit(row_id, name) and (not namespace or sees(namespace))
        )
        if len(first) > matches_max:
            first, is_cut = sorted(first, key=order)[:matches_max], True
    return sorted(first, key=order), is_cut


async def search(call: Call) -> web.Response:
    """PUT /v1/search."""
    body = await call.body(SearchBody)
    view = call.view()
    matches: dict[str, list[str]] = {}
    truncations: dict[str, bool] = {}
    for context in _contexts(body.context):
        prefix = uuid_prefix(body.prefix) if context in WITH_UUIDS else body.prefix
        hits, is_cut = await _hits(call, view, context, partial(_has_prefix, prefix))
        if hits or context == body.context:
            matches[context] = [hit.id for hit in hits]
        truncations[context] = is_cut
    answer = {"Index": view.index, "Matches": matches, "Truncations": truncations}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, view.index)


async def fuzzy(call: Call) -> web.Response:
    """PUT /v1/search/fuzzy."""
    body = await call.body(FuzzySearchBody)
    text, settings = body.text.lower(), call.agent.search
    if not settings.is_enabled:
        raise Refused(500, "fuzzy search is not enabled: server.search.fuzzy_enabled is false on this agent")
    if len(text) < settings.text_min:
        raise Refused(500, f"fuzzy search query must be at least {settings.text_min} characters, got {len(text)}")
    view = call.view()
    matches: dict[str, list[dict[str, Any]]] = {}
    truncations: dict[str, bool] = {}
    for context in _contexts(body.context):
        hits, is_cut = await _hits(
            call,
            view,
            context,
            _fits(context, text),
            order=partial(_rank, text),
            matches_max=settings.matches_max,
        )
        if hits:
            matches[context] = [_fuzzy_match(context, hit) for hit in hits]
        truncations[context] = is_cut
    if body.context in ("", ALL, "jobs"):
        await _add_parts(call, view, text, matches, truncations)
    answer = {"Index": view.index, "Matches": matches, "Truncations": truncations}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, view.index)


async def _add_parts(
    call: Call, view: View, text: str, matches: dict[str, list[dict[str, Any]]], truncations: dict[str, bool]
) -> None:
    """Add the parts of jobs with matching names, by name; the scope says where each is."""
    from yurt.server.views.job_parts import PARTS, job_parts

    hits_by_kind: dict[str, list[tuple[str, tuple[str, ...]]]] = {kind: [] for kind in PARTS}
    truncations.update(dict.fromkeys(PARTS, False))
    listing, sees, matches_max = view.of(SearchView).jobs(), call.options.sees, call.agent.search.matches_max
    async for part in call.turns.slices(listing.rows):
        seen = (job for job in listing.among(part) if sees(job.namespace))
        for kind, name, scope in itertools.chain.from_iterable(map(job_parts, seen)):
            if text in name.lower():
                hits_by_kind[kind].append((name, scope))
        for kind, hits in hits_by_kind.items():
            if len(hits) > matches_max:
                hits_by_kind[kind], truncations[kind] = sorted(hits, key=partial(_part_rank, text))[:matches_max], True
    for kind, hits in hits_by_kind.items():
        if hits:
            matches[kind] = [
                {"ID": name, "Scope": list(scope)} for name, scope in sorted(hits, key=partial(_part_rank, text))
            ]


def _has_prefix(prefix: str, row_id: str, _name: str) -> bool:
    return row_id.startswith(prefix)


def _fits(context: str, text: str) -> Callable[[str, str], bool]:
    """The match of a fuzzy search in a context: objects with UUIDs match in the name, else by the prefix of the id."""
    if context not in WITH_UUIDS:
        return partial(_has_in_name_or_id, text)
    if context in SHOWN_BY_NAME:
        return partial(_has_in_name, text)
    return partial(_begins_with, (text, uuid_prefix(text)))


def _rank(text: str, hit: Hit) -> tuple[Any, ...]:
    """The order of fuzzy hits: equal to the text, beginning with it, holding it; then by name, id and namespace."""
    return (*_closeness(text, hit.name or hit.id, hit.id), hit.name or hit.id, hit.id, hit.namespace)


def _part_rank(text: str, part: tuple[str, tuple[str, ...]]) -> tuple[Any, ...]:
    """The same order for parts of jobs, by name and by where they are."""
    return (*_closeness(text, part[0], part[0]), *part)


def _closeness(text: str, name: str, id: str) -> tuple[int]:
    both = (name.lower(), id.lower())
    return (0 if text in both else 1 if any(each.startswith(text) for each in both) else 2,)


def _begins_with(spellings: tuple[str, ...], row_id: str, name: str) -> bool:
    return (name or row_id).lower().startswith(spellings)


def _has_in_name(text: str, row_id: str, name: str) -> bool:
    return text in (name or row_id).lower()


def _has_in_name_or_id(text: str, row_id: str, name: str) -> bool:
    return text in name.lower() or text in row_id.lower()


def _fuzzy_match(context: str, hit: Hit) -> dict[str, Any]:
    """Objects with a name of their own are shown by it, with namespace and id as scope."""
    if context in SHOWN_BY_NAME:
        return {"ID": hit.name, "Scope": [hit.namespace, hit.id] if hit.namespace else [hit.id]}
    return {"ID": hit.id, "Scope": None}
