"""Workload identities: tokens (JWT) that identify the task and allocation of their bearer.

A node gets tokens for the allocations that it runs. Any reader of `/.well-known/jwks.json` can verify them; the
servers themselves need not be asked.
"""

from __future__ import annotations

from typing import Any

from yurt.rules.workload_claims import (
    DEFAULT,
    Signing,
    claim_lookup,
    extra_claims,
    identity_name,
    workload_claims,
)
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.sdk.value import NANOSECONDS
from yurt.server.config import ServerConfig
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.tokens import signed_token
from yurt.server.log.replica import Replica
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_client_terminal
from yurt.structs.rpc import IdentityQuery, SignedIdentity
from yurt.structs.service import WorkloadIdentity
from yurt.structs.task import Task


class Identities:
    """Signs workload identities."""

    def __init__(self, replica: Replica, config: ServerConfig, *, root_keys: RootKeys, keyring: Keyring) -> None:
        self._replica = replica
        self._config = config
        self._root_keys = root_keys
        self._keyring = keyring

    @property
    def can_sign(self) -> bool:
        """Whether this server has the active root key."""
        return self._root_keys.usable() is not None

    async def sign(self, query: IdentityQuery) -> SignedIdentity:
        """A token for a task; raises NotFound, PermissionDenied or Invalid."""
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None or alloc.job is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id or is_client_terminal(alloc):
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")
        group = alloc.job.group(alloc.task_group)
        task = group.task(query.task) if group is not None else None
        if task is None:
            raise NotFound(f"allocation {alloc.id} has no task {query.task[:128]!r}")
        identity = identity_of(task, query.name)
        key = await self._root_keys.active()
        claims = self._claims(alloc, task.name, identity)
        token = await self._replica.env.in_thread(signed_token, self._keyring, key.key_id, claims)
        return SignedIdentity(token=token, expires_at=claims.get("exp", 0) * NANOSECONDS)

    def _claims(self, alloc: Allocation, task: str, identity: WorkloadIdentity) -> dict[str, Any]:
        env, state, region = self._replica.env, self._replica.state, self._config.region
        node = None if identity_name(identity) == DEFAULT else state.nodes.get(alloc.node_id)
        lookup = claim_lookup(alloc, task, region=region, node=node)
        signing = Signing(region=region, issuer=self._config.oidc_issuer, now=env.now(), token_id=env.uuid())
        extra = extra_claims(state.namespaces.get(alloc.namespace), identity, lookup)
        return workload_claims(alloc, task, identity, signing=signing, extra=extra)


def identity_of(task: Task, name: str) -> WorkloadIdentity:
    """A task's identity by name; the default one exists even without its block in the job."""
    named = (*((task.identity,) if task.identity is not None else ()), *task.identities)
    identity = next((each for each in named if identity_name(each) == name), None)
    if identity is None and name != DEFAULT:
        raise Invalid(f"task {task.name!r} has no identity {name[:128]!r}")
    return identity or WorkloadIdentity(name=DEFAULT)
