"""Decisions with their reasons: which policy, which rule.

What is decided is `Rights.allows`; a reason is only worded when somebody asks for it.
"""

from __future__ import annotations

from typing import Final, assert_never

from yurt.access import ANYWHERE, Decision, Need, Scope
from yurt.access.needs import (
    AllOf,
    Anonymous,
    AnyInNamespace,
    AnyOf,
    Area,
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
from yurt.acl.rights import Kind, Rights
from yurt.acl.vocabulary import DENY

_MANAGEMENT: Final = Decision(is_allowed=True, reason="a management token may do everything")


def decide(rights: Rights, need: Need, scope: Scope) -> Decision:
    """Whether a caller may do what the need says in the scope, and by which rule."""
    if rights.kind is Kind.MANAGEMENT:
        return _MANAGEMENT
    return Decision(is_allowed=rights.allows(need, scope), reason=_why(rights, need, scope))


def _why(rights: Rights, need: Need, scope: Scope) -> str:
    match need:
        case AnyOf(needs=parts):
            held = next((part for part in parts if rights.allows(part, scope)), None)
            if held is not None:
                return _why(rights, held, scope)
            return "; ".join(_why(rights, part, scope) for part in parts)
        case AllOf(needs=parts):
            missing = [part for part in parts if not rights.allows(part, scope)]
            return "; ".join(_why(rights, part, scope) for part in missing or parts)
        case EachRow(need=inner):
            return "anyone may ask; rows are filtered" if scope == ANYWHERE else _why(rights, inner, scope)
        case _:
            return _why_leaf(rights, need, scope)


def _why_leaf(rights: Rights, need: Leaf, scope: Scope) -> str:
    match need:
        case Anonymous():
            return "anyone may ask"
        case Authenticated():
            return "the caller is known" if rights.kind is Kind.KNOWN else "no valid token was shown"
        case Management():
            return "only a management token may do this"
        case AsWorkload():
            is_one = rights.allows(need, scope)
            return f"{'' if is_one else 'only '}a workload identity of the namespace may do this"
        case InNamespace(capabilities=wanted):
            return _reason(rights.policies.namespaces, "namespace", scope.namespace, wanted)
        case AnyInNamespace():
            return _why_any(rights, scope)
        case InNodePool(capability=capability):
            return _reason(rights.policies.node_pools, "node_pool", scope.node_pool, (capability,))
        case OnHostVolume(capabilities=wanted):
            return _reason(rights.policies.host_volumes, "host_volume", scope.host_volume, wanted)
        case OnVariable():
            return _why_variable(rights, need, scope)
        case AtLevel(area=area, level=level):
            known = rights.policies.areas.get(area)
            return f"no policy has a level for {area}" if known is None else f"{area}:{level}: {known.rule}"
        case AsOperator(capability=capability):
            return _why_operator(rights, capability)
        case _:
            assert_never(need)


def _why_any(rights: Rights, scope: Scope) -> str:
    if scope.namespace is None:
        return "some namespace" if rights.allows(AnyInNamespace(), scope) else "no policy grants anything"
    found = rights.policies.namespaces.find(scope.namespace)
    return f'no rule matches namespace "{scope.namespace}"' if found is None else str(found.rule)


def _why_variable(rights: Rights, need: OnVariable, scope: Scope) -> str:
    if scope.namespace is None or scope.variable is None:
        is_some = rights.on_some_variable(need, scope.namespace, scope.variable)
        return f"{'some' if is_some else 'no'} rule grants variables:{need.capability}"
    found = rights.path_grants(need, scope.namespace, scope.variable)
    if found is True:
        return "the variable is the workload's own"
    name = f'"{scope.variable}" of namespace "{scope.namespace}"'
    return _verdict(found or None, f"variable {name}", (need.capability,))


def _why_operator(rights: Rights, capability: str) -> str:
    level = rights.policies.areas.get(Area.OPERATOR)
    rule = rights.policies.operator.get(DENY) or rights.policies.operator.get(capability)
    if level is not None and level.level == DENY:
        rule = level.rule
    return f"no policy grants operator:{capability}" if rule is None else str(rule)


def _reason(labels: Labels[Grants], kind: str, name: str | None, wanted: tuple[str, ...]) -> str:
    if name is not None:
        return _verdict(labels.find(name), f'{kind} "{name}"', wanted)
    for each in labels.values():
        for capability in wanted:
            if capability in each.by:
                return f"{capability}: {each.by[capability]}"
    return f"no rule grants {' or '.join(wanted)} in any {kind}"


def _verdict(found: Grants | None, name: str, wanted: tuple[str, ...]) -> str:
    """What the rule that decides about a name says about the wanted capabilities."""
    if found is None:
        return f"no rule matches {name}"
    if DENY in found.by:
        return f"denied: {found.by[DENY]}"
    for capability in wanted:
        if capability in found.by:
            return f"{capability}: {found.by[capability]}"
    return f"{' or '.join(wanted)} is not granted for {name} by the rule that decides: {found.rule}"
