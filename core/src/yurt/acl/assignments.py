"""Collects the policies of a caller: a token's own and those of its roles, or those attached to a workload."""

from __future__ import annotations

import hmac

from yurt.acl.rights import Workload
from yurt.state import Snapshot
from yurt.structs.acl import ACLPolicy, ACLToken


def token_of(state: Snapshot, secret_hash: str) -> ACLToken | None:
    """The token with this hash of its secret."""
    for token in state.acl_tokens.where("secret", secret_hash):
        # The index finds the row as a dictionary does; the decision compares in constant time.
        if hmac.compare_digest(token.secret_hash.encode(), secret_hash.encode()):
            return token
    return None


def policies_of(state: Snapshot, token: ACLToken) -> tuple[str, ...]:
    """The names of a token's policies and those of its roles; deleted roles contribute none."""
    roles = (state.acl_roles.get(link.id) for link in token.roles)
    by_roles = (link.name for role in roles if role is not None for link in role.policies)
    return tuple(dict.fromkeys((*token.policies, *by_roles)))


def attached_policies(state: Snapshot, workload: Workload) -> tuple[ACLPolicy, ...]:
    """The policies that are attached to a workload: to its task, group, job, or all of its namespace."""
    return tuple(
        policy for policy in state.acl_policies.where("namespace", workload.namespace) if _is_attached(policy, workload)
    )


def _is_attached(policy: ACLPolicy, workload: Workload) -> bool:
    to = policy.job_acl
    if to is None or to.namespace != workload.namespace:
        return False
    if not to.job_id:
        return True
    if to.job_id != workload.job:
        return False
    return not to.group or (to.group == workload.group and to.task in ("", workload.task))
