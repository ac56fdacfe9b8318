"""Describes a caller in words for the audit log and explanations; decisions never use it."""

from __future__ import annotations

from typing import assert_never

from yurt.access import Caller, Identity, InvalidToken, NoToken, ShownNode, ShownToken, ShownWorkload
from yurt.acl.assignments import attached_policies, policies_of, token_of
from yurt.acl.resolver import Resolved
from yurt.state import Snapshot
from yurt.structs.acl import ANONYMOUS

TOKEN, NO_TOKEN, WORKLOAD, NODE, INVALID = "token", "no token", "workload identity", "node identity", "invalid token"


def identity_of(state: Snapshot, caller: Caller, resolved: Resolved) -> Identity:
    """The identity behind a credential, with its policies; `resolved` has the rights."""
    problem = resolved.problem
    match caller:
        case NoToken():
            return Identity(
                resolved_by=NO_TOKEN, accessor_id=ANONYMOUS, name="Anonymous Token", type="client",
                policies=(ANONYMOUS,), problem=problem,
            )  # fmt: skip
        case ShownToken(secret_hash=secret_hash):
            token = token_of(state, secret_hash)
            if token is None:
                return Identity(resolved_by=TOKEN, problem=problem)
            policies = policies_of(state, token)
            return Identity(
                resolved_by=TOKEN, accessor_id=token.accessor_id, name=token.name, type=token.type,
                is_global=token.is_global, policies=policies, problem=problem or _missing(state, policies),
            )  # fmt: skip
        case ShownWorkload(alloc_id=alloc_id, job=job, task=task):
            workload = resolved.rights.workload
            attached = () if workload is None else attached_policies(state, workload)
            policies = tuple(policy.name for policy in attached)
            name = f"{job}/{task}" if task else job
            return Identity(resolved_by=WORKLOAD, accessor_id=alloc_id, name=name, policies=policies, problem=problem)
        case ShownNode(node_id=node_id):
            node = state.nodes.get(node_id)
            name = "" if node is None else node.name
            return Identity(resolved_by=NODE, accessor_id=node_id, name=name, problem=problem)
        case InvalidToken():
            return Identity(resolved_by=INVALID, problem=problem)
        case _:
            assert_never(caller)


def _missing(state: Snapshot, policies: tuple[str, ...]) -> str:
    """A note on a token's missing policies, because of which it has fewer rights than it seems; "" for none."""
    missing = [f'"{name}"' for name in policies if name not in state.acl_policies]
    if len(missing) > 1:
        return f"its policies {', '.join(missing)} do not exist"
    return f"its policy {missing[0]} does not exist" if missing else ""
