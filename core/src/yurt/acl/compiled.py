"""Compiles a set of policies into look-up tables that all later decisions use.

Blocks of the same label in several policies are united; where one of them denies, the label denies. A denial counts for
its label only: the label that decides about a name is the name itself or the nearest glob (`yurt.acl.globs`), and
labels are never united with each other. A label that grants nothing still hides the globs behind it.

Two results differ from Nomad's, where a denial of one policy may lose to a grant of another: a denied path of variables
and a denied capability of operators stay denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from yurt.access.needs import Area
from yurt.acl.globs import Labels
from yurt.acl.policy import AreaLevel, Granted, Policy, Rule, path_label
from yurt.acl.vocabulary import DENY, RANKS


class Grants(NamedTuple):
    """What the policies grant under one label."""

    label: str
    capabilities: frozenset[str]
    """Exactly `deny` where one of them denies."""
    by: Granted
    rule: Rule
    """A rule with this label, which also counts when it grants nothing."""


class GrantLabels(Labels[Grants]):
    """The labels of one kind of block, and what they grant together."""

    __slots__ = ("anywhere",)

    def __init__(self, by_label: Mapping[str, Grants]) -> None:
        super().__init__(by_label)
        self.anywhere = frozenset(each for grants in by_label.values() for each in grants.capabilities) - {DENY}
        """The capabilities that at least one label grants: the answer for lists, before a name is known."""


class CompiledPolicies:
    """A set of policies in a form for decisions; read-only."""

    __slots__ = ("areas", "host_volumes", "is_empty", "namespaces", "node_pools", "operator", "variables")

    def __init__(self, policies: Iterable[Policy]) -> None:
        # The order only chooses which of several policies is named as the reason.
        policies = sorted(policies, key=lambda policy: policy.name)
        self.namespaces = _labels((each.label, each.granted, each.rule) for all in policies for each in all.namespaces)
        self.node_pools = _labels((each.label, each.granted, each.rule) for all in policies for each in all.node_pools)
        self.host_volumes = _labels(
            (each.label, each.granted, each.rule) for all in policies for each in all.host_volumes
        )
        self.variables = _labels(
            (path_label(each.namespace, each.path), each.granted, each.rule)
            for all in policies
            for each in all.variables
        )
        self.areas = _highest(level for each in policies for level in each.levels)
        self.operator = _united(granted for each in policies for granted in each.operator)
        self.is_empty = not policies


def _labels(blocks: Iterable[tuple[str, Granted, Rule]]) -> GrantLabels:
    gathered: dict[str, tuple[list[Granted], Rule]] = {}
    for label, granted, rule in blocks:
        gathered.setdefault(label, ([], rule))[0].append(granted)
    return GrantLabels({label: _grants(label, granted, rule) for label, (granted, rule) in gathered.items()})


def _grants(label: str, granted: Iterable[Granted], rule: Rule) -> Grants:
    by = _united(granted)
    return Grants(label, frozenset(by), by, rule)


def _united(granted: Iterable[Granted]) -> Granted:
    by: dict[str, Rule] = {}
    for each in granted:
        for capability, rule in each.items():
            by.setdefault(capability, rule)
    united = {DENY: by[DENY]} if DENY in by else by
    assert DENY not in united or len(united) == 1, "a denied label has no other capability"
    return united


def _highest(levels: Iterable[AreaLevel]) -> Mapping[Area, AreaLevel]:
    """The effective level of each area: a denial takes precedence."""
    found: dict[Area, AreaLevel] = {}
    for each in levels:
        if each.level not in RANKS or each.area not in set(Area):
            continue
        area = Area(each.area)
        if area not in found or RANKS[each.level] > RANKS[found[area].level]:
            found[area] = each
    return found
