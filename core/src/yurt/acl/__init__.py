"""Access control: the policy language, and what a caller's policies allow.

`parse_policy` reads a policy and says all that is wrong with it. `CompiledPolicies` unites the policies of a caller
into tables, once; `Rights` are those tables and who the caller is, and decide. `decide` adds the reason: which policy,
which rule. A `Resolver` makes rights of what a caller showed, by the state; `AclAuthority` joins all of it behind the
protocol `yurt.access.Authority`. Nothing here does input or output. What no rule grants is refused.
"""

from yurt.acl.authority import AclAuthority
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.decisions import decide
from yurt.acl.parsing import parse_policy
from yurt.acl.policy import Policy, PolicyError, Rule
from yurt.acl.resolver import Resolved, Resolver
from yurt.acl.rights import Kind, Rights, Workload

__all__ = [
    "AclAuthority",
    "CompiledPolicies",
    "Kind",
    "Policy",
    "PolicyError",
    "Resolved",
    "Resolver",
    "Rights",
    "Rule",
    "Workload",
    "decide",
    "parse_policy",
]
