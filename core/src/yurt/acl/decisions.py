"""Decisions with their reasons: which policy, which rule.

`Rights.allows` decides; the text of a reason is only made when a caller requests it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, assert_never

from yurt.access import ANYWHERE, DecidingRule, Decision, Need, Scope
from yurt.access.needs import (
    AllOf,
    Anonymous,
    AnyInNamespace,
    AnyOf,
    Area,
    AsNode,
    AsOperator,
    AsWorkload,
    AtLevel,
    Authenticated,
    EachRow,
    InNamespace,
    InNodePool,
    Leaf,
    Management,
    OnHostVolume,
    OnVariable,
)
from yurt.acl.compiled import Grants
from yurt.acl.globs import Labels
from yurt.acl.policy import Rule
from yurt.acl.rights import AuthenticationLevel, Rights
from yurt.acl.vocabulary import DENY

_MANAGEMENT: Final = Decision(is_allowed=True, reason="a management token may do everything")


class Why(NamedTuple):
    """One reason of a decision, with the rule that decided, if any."""

    text: str
    rule: Rule | None = None


def decide(rights: Rights, need: Need, scope: Scope) -> Decision:
    """Whether a caller's rights satisfy the need in the scope, and by which rules."""
    if rights.kind is AuthenticationLevel.MANAGEMENT:
        return _MANAGEMENT
    reasons = tuple(dict.fromkeys(_why(rights, need, scope)))
    return Decision(
        is_allowed=rights.allows(need, scope),
        reason="; ".join(each.text for each in reasons),
        rules=tuple(dict.fromkeys(_shown(each.rule) for each in reasons if each.rule is not None)),
    )


def _shown(rule: Rule) -> DecidingRule:
    return DecidingRule(policy=rule.policy, line=rule.line, column=rule.column, text=rule.text)


def _why(rights: Rights, need: Need, scope: Scope) -> Iterable[Why]:
    match need:
        case AnyOf(needs=parts):
            granted = next((part for part in parts if rights.allows(part, scope)), None)
            return _why_each(rights, parts if granted is None else (granted,), scope)
        case AllOf(needs=parts):
            missing = tuple(part for part in parts if not rights.allows(part, scope))
            return _why_each(rights, missing or parts, scope)
        case EachRow(need=inner):
            if scope == ANYWHERE:
                return (Why("anyone may ask; rows are filtered"),)
            return _why(rights, inner, scope)
        case _:
            return (_why_leaf(rights, need, scope),)


def _why_each(rights: Rights, parts: Iterable[Need], scope: Scope) -> Iterable[Why]:
    return [why for part in parts for why in _why(rights, part, scope)]


def _why_leaf(rights: Rights, need: Leaf, scope: Scope) -> Why:
    match need:
        case Anonymous():
            return Why("anyone may ask")
        case Authenticated():
            return Why(
                "the caller is known" if rights.kind is AuthenticationLevel.KNOWN else "no valid token was shown"
            )
        case Management():
            return Why("only a management token may do this")
        case AsWorkload():
            is_one = rights.allows(need, scope)
            return Why(f"{'' if is_one else 'only '}a workload identity of the namespace may do this")
        case AsNode():
            return Why(f"{'' if rights.allows(need, scope) else 'only '}the node itself may do this")
        case InNamespace(capabilities=required):
            return _reason(rights.policies.namespaces, "namespace", scope.namespace, required)
        case AnyInNamespace():
            return _why_any(rights, scope)
        case InNodePool(capability=capability):
            return _reason(rights.policies.node_pools, "node_pool", scope.node_pool, (capability,))
        case OnHostVolume(capabilities=required):
            return _reason(rights.policies.host_volumes, "host_volume", scope.host_volume, required)
        case OnVariable():
            return _why_variable(rights, need, scope)
        case AtLevel(area=area, level=level):
            granted = rights.policies.areas.get(area)
            if granted is None:
                return Why(f"no policy has a level for {area}")
            return Why(f"{area}:{level}: {granted.rule}", granted.rule)
        case AsOperator(capability=capability):
            return _why_operator(rights, capability)
        case _:
            assert_never(need)


def _why_any(rights: Rights, scope: Scope) -> Why:
    if scope.namespace is None:
        return Why("some namespace" if rights.allows(AnyInNamespace(), scope) else "no policy grants anything")
    found = rights.policies.namespaces.find(scope.namespace)
    if found is None:
        return Why(f'no rule matches namespace "{scope.namespace}"')
    return Why(str(found.rule), found.rule)


def _why_variable(rights: Rights, need: OnVariable, scope: Scope) -> Why:
    if scope.namespace is None or scope.variable is None:
        is_some = rights.on_some_variable(need, scope.namespace, scope.variable)
        return Why(f"{'some' if is_some else 'no'} rule grants variables:{need.capability}")
    found = rights.path_grants(need, scope.namespace, scope.variable)
    if found is True:
        return Why("the variable is the workload's own")
    name = f'"{scope.variable}" of namespace "{scope.namespace}"'
    return _verdict(found or None, f"variable {name}", (need.capability,))


def _why_operator(rights: Rights, capability: str) -> Why:
    level = rights.policies.areas.get(Area.OPERATOR)
    rule = rights.policies.operator.get(DENY) or rights.policies.operator.get(capability)
    if level is not None and level.level == DENY:
        rule = level.rule
    return Why(f"no policy grants operator:{capability}") if rule is None else Why(str(rule), rule)


def _reason(labels: Labels[Grants], kind: str, name: str | None, required: tuple[str, ...]) -> Why:
    if name is not None:
        return _verdict(labels.find(name), f'{kind} "{name}"', required)
    for each in labels.values():
        for capability in required:
            if capability in each.by:
                return Why(f"{capability}: {each.by[capability]}", each.by[capability])
    return Why(f"no rule grants {' or '.join(required)} in any {kind}")


def _verdict(found: Grants | None, name: str, required: tuple[str, ...]) -> Why:
    """The required capabilities that the rule for a name grants."""
    if found is None:
        return Why(f"no rule matches {name}")
    if DENY in found.by:
        return Why(f"denied: {found.by[DENY]}", found.by[DENY])
    for capability in required:
        if capability in found.by:
            return Why(f"{capability}: {found.by[capability]}", found.by[capability])
    text = f"{' or '.join(required)} is not granted for {name} by the rule that decides: {found.rule}"
    return Why(text, found.rule)
