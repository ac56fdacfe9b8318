"""Workload identities: tokens (JWT, RS256) that identify the task and allocation of their bearer.

A node gets tokens for the allocations that it runs. Whoever fetches `/.well-known/jwks.json` can check them; the
servers themselves need not be asked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.sdk.value import NANOSECONDS
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.tokens import AUDIENCE, signed_token
from yurt.server.log.replica import Replica
from yurt.structs.alloc import Allocation
from yurt.structs.questions import is_client_terminal
from yurt.structs.rpc import IdentityQuery, SignedIdentity
from yurt.structs.service import WorkloadIdentity
from yurt.structs.task import Task

DEFAULT = "default"
DEFAULT_AUDIENCE = (AUDIENCE,)


class Identities:
    """Signs identities."""

    def __init__(self, replica: Replica, region: str, *, root_keys: RootKeys, keyring: Keyring) -> None:
        self._replica = replica
        self._region = region
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
        claims = self._claims(alloc, task, identity)
        token = await asyncio.to_thread(signed_token, self._keyring, key.key_id, claims)
        return SignedIdentity(token=token, expires_at=claims.get("exp", 0) * NANOSECONDS)

    def _claims(self, alloc: Allocation, task: Task, identity: WorkloadIdentity) -> dict[str, Any]:
        env, name = self._replica.env, identity.name or DEFAULT
        now = env.now() // NANOSECONDS
        subject = (self._region, alloc.namespace, alloc.job_id, alloc.task_group, task.name, name)
        audience = identity.audience or (DEFAULT_AUDIENCE if name == DEFAULT else ())
        claims: dict[str, Any] = {
            "iat": now,
            "jti": env.uuid(),
            "nbf": now,
            "nomad_allocation_id": alloc.id,
            "nomad_job_id": alloc.job_id,
            "nomad_namespace": alloc.namespace,
            "nomad_task": task.name,
            "sub": ":".join(subject),
        }
        if audience:
            claims["aud"] = audience[0] if len(audience) == 1 else list(audience)
        if identity.ttl > 0:
            claims["exp"] = now + max(identity.ttl // NANOSECONDS, 1)
        return claims


def identity_of(task: Task, name: str) -> WorkloadIdentity:
    """A task's identity by name; the default one exists unless the job disables it."""
    named = (*((task.identity,) if task.identity is not None else ()), *task.identities)
    found = next((each for each in named if (each.name or DEFAULT) == name), None)
    if found is None and name != DEFAULT:
        raise Invalid(f"task {task.name!r} has no identity {name[:128]!r}")
    return found or WorkloadIdentity(name=DEFAULT)
