"""Access control: the policy language, and decisions by a caller's policies.

`parse_policy` reads a policy and says all that is wrong with it. `CompiledPolicies` unites the policies of a caller
into tables, once; `Rights` are those tables and who the caller is, and decide. `decide` adds the reason: which policy,
which rule. A `Resolver` makes rights of what a caller showed, by the state; `AclAuthority` joins all of it behind the
protocol `yurt.access.Authority`. Nothing here does input or output. What no rule grants is refused.

Names are loaded when they are first used: an agent without access control imports neither the language nor its parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yurt.acl.authority import AclAuthority
    from yurt.acl.compiled import CompiledPolicies
    from yurt.acl.decisions import decide
    from yurt.acl.parsing import parse_policy
    from yurt.acl.policy import Policy, PolicyError, Rule
    from yurt.acl.resolver import Resolved, Resolver
    from yurt.acl.rights import AuthenticationLevel, Rights, Workload

__all__ = [
    "AclAuthority",
    "AuthenticationLevel",
    "CompiledPolicies",
    "Policy",
    "PolicyError",
    "Resolved",
    "Resolver",
    "Rights",
    "Rule",
    "Workload",
    "decide",
    "parse_policy",
]  # fmt: skip

_HOMES = {
    "AclAuthority": "authority", "CompiledPolicies": "compiled", "AuthenticationLevel": "rights", "Policy": "policy",
    "PolicyError": "policy", "Resolved": "resolver", "Resolver": "resolver", "Rights": "rights", "Rule": "policy",
    "Workload": "rights", "decide": "decisions", "parse_policy": "parsing",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
