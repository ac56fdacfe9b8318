"""Lists a caller's permissions so that pages can hide or explain refused actions; it decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from yurt.access import ANYWHERE, Actor, Authority, Scope, needs
from yurt.access.needs import Area, AtLevel, Capability, Level, Need, NodePoolCapability, VariableCapability
from yurt.runtime.turns import Turns

NAMES_MAX: Final = 200
"""Namespaces and node pools that are listed; further ones are only counted."""
NAMES_A_SLICE: Final = 20
ALL: Final = "*"
_LEVELS: Final = (Level.WRITE, Level.READ)
_AREAS: Final = {
    "Node": (Area.NODE, _LEVELS),
    "Agent": (Area.AGENT, _LEVELS),
    "Operator": (Area.OPERATOR, _LEVELS),
    "Quota": (Area.QUOTA, _LEVELS),
    "Plugin": (Area.PLUGIN, (Level.READ, Level.LIST)),
}


class Decider:
    """Asks an authority about one caller."""

    __slots__ = ("_actor", "_authority")

    def __init__(self, authority: Authority, actor: Actor) -> None:
        self._authority = authority
        self._actor = actor

    def may(self, need: Need, scope: Scope = ANYWHERE) -> bool:
        """Whether the caller may do it in the scope."""
        return self._authority.allows(self._actor, need, scope)

    def may_everywhere(self, need: Need) -> bool:
        """Whether the caller may do it in every scope."""
        return self._authority.allows_everywhere(self._actor, need)


async def abilities(decider: Decider, namespaces: Iterable[str], pools: Iterable[str], turns: Turns) -> dict[str, Any]:
    """The `Can` of a session; namespaces and pools without any permission are omitted."""
    may_all = decider.may_everywhere(needs.MANAGEMENT)
    names, pool_names = ([ALL], [ALL]) if may_all else (sorted(namespaces), sorted(pools))
    granted, variables = dict[str, list[str]](), dict[str, list[str]]()
    async for part in turns.slices(names[:NAMES_MAX], NAMES_A_SLICE):
        for name in part:
            scope = ANYWHERE if name == ALL else Scope(namespace=name)
            granted[name] = [each.value for each in Capability if decider.may(needs.namespace(each), scope)]
            variables[name] = [each.value for each in VariableCapability if decider.may(needs.variable(each), scope)]
    return {
        "Management": may_all,
        "Namespaces": _filled(granted),
        "NamespacesOmitted": max(0, len(names) - NAMES_MAX),
        "Variables": _filled(variables),
        "NodePools": _filled({name: _of_pool(decider, name) for name in pool_names[:NAMES_MAX]}),
        **{name: _level(decider, area, levels) for name, (area, levels) in _AREAS.items()},
    }


def _filled(by_name: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: each for name, each in by_name.items() if each}


def _of_pool(decider: Decider, name: str) -> list[str]:
    scope = ANYWHERE if name == ALL else Scope(node_pool=name)
    return [each.value for each in NodePoolCapability if decider.may(needs.node_pool(each), scope)]


def _level(decider: Decider, area: Area, levels: tuple[StrEnum, ...]) -> str:
    """The highest level in an area; "" for none."""
    for level in levels:
        if decider.may(AtLevel(area=area, level=Level(level))):
            return level.value
    return ""
