"""Converts a caller's rights to the form for agents without policies (`yurt.structs.rpc`), and back."""

from __future__ import annotations

from typing import Final

from yurt.access import Caller, Identity, ShownNode, ShownToken, ShownWorkload
from yurt.access.needs import Area
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.policy import AreaLevel, Block, Policy, Rule
from yurt.acl.resolver import Resolved
from yurt.acl.rights import AuthenticationLevel, Rights
from yurt.sdk.value import Duration, UnixNano
from yurt.structs.rpc import CallerRights, NamespaceRights

AREAS: Final = (Area.AGENT, Area.NODE)
"""What an agent without a server decides about besides namespaces."""
_BY_SERVER: Final = Rule(policy="", line=0, column=0, text="what a server says of the caller")


def caller_rights(caller: Caller, resolved: Resolved, identity: Identity, now: UnixNano) -> CallerRights:
    """The rights of a caller, for an agent without a server. Names of policies are omitted."""
    rights = resolved.rights
    levels: dict[str, str] = {
        area: rights.policies.areas[area].level for area in AREAS if area in rights.policies.areas
    }
    namespaces = (
        NamespaceRights(label=each.label, capabilities=tuple(sorted(each.capabilities)))
        for each in rights.policies.namespaces.values()
    )
    return CallerRights(
        kind=rights.kind,
        namespaces=tuple(sorted(namespaces, key=lambda each: each.label)),
        levels=levels,
        resolved_by=identity.resolved_by,
        accessor_id=identity.accessor_id,
        name=identity.name,
        type=identity.type,
        is_global=identity.is_global,
        problem=identity.problem,
        lifetime=_lifetime(caller, resolved, now),
    )


def rights_of(found: CallerRights) -> Rights:
    """The rights received from a server; an unknown kind has none."""
    kinds = {kind.value: kind for kind in AuthenticationLevel}
    blocks = tuple(
        Block(each.label, dict.fromkeys(each.capabilities, _BY_SERVER), _BY_SERVER) for each in found.namespaces
    )
    levels = tuple(AreaLevel(area, level, _BY_SERVER) for area, level in found.levels.items() if area in AREAS)
    policy = Policy(name="", namespaces=blocks, levels=levels)
    return Rights(kinds.get(found.kind, AuthenticationLevel.NOBODY), CompiledPolicies((policy,)))


def identity_in(found: CallerRights) -> Identity:
    """The caller's identity, for records."""
    return Identity(
        resolved_by=found.resolved_by,
        accessor_id=found.accessor_id,
        name=found.name,
        type=found.type,
        is_global=found.is_global,
        problem=found.problem,
    )


def _lifetime(caller: Caller, resolved: Resolved, now: UnixNano) -> Duration | None:
    ends = [] if resolved.token is None else [resolved.token.expiration_time]
    if isinstance(caller, ShownToken | ShownWorkload | ShownNode):
        ends.append(caller.valid_until)
    return min((Duration(max(end - now, 0)) for end in ends if end > 0), default=None)
