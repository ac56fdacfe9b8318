"""Replicates what all regions share from the authoritative region: namespaces, quotas, node pools, and with access
control policies, roles, global tokens, login methods and binding rules.

The leader of every other region compares digests of its rows with those of the authoritative region, deletes rows
that are deleted there, fetches new or different ones and stores them unchanged; then it waits for the next change.
Deletions come first, since they take rights away. Each term begins with a comparison of everything, so that a change of
leaders in the middle costs nothing but that.

Nothing is deleted because of an answer that is refused, cannot be read, or lists a table that was never written (a new
cluster under the old name). What the region itself needs is not deleted (a namespace with jobs, a pool with nodes),
and local tokens are never touched. While the authoritative region cannot be reached nothing changes, and it is asked
again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from yurt.fsm.acl.replication import token_refusal
from yurt.fsm.basis import expectation
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Conflict, Invalid, Reason, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.server.log.replica import Replica
from yurt.state import TABLES, Tables
from yurt.state.tables import FIRST_INDEX
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.commands import (
    AnyCommand,
    DeleteACLAuthMethods,
    DeleteACLBindingRules,
    DeleteACLPolicies,
    DeleteACLRoles,
    DeleteACLTokens,
    DeleteNamespaces,
    DeleteNodePools,
    DeleteQuotas,
    ReplicateACLAuthMethods,
    ReplicateACLBindingRules,
    ReplicateACLRoles,
    ReplicateACLTokens,
    UpsertACLPolicies,
    UpsertNamespaces,
    UpsertNodePools,
    UpsertQuotas,
)
from yurt.structs.shared_rows import KEYS_MAX, SharedDigests, row_digest

log = logging.getLogger(__name__)

WAIT_S: Final = 60.0
"""How long the authoritative region may wait for a change."""
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
UNDELETABLE_WAIT_S: Final = 5.0
"""The same while something could not be deleted: what needs it here may go without a change there."""
ROUND_MIN_S: Final = 0.1
"""The pause after a change, in which further ones gather."""
SLICE: Final = 200
BUILT_IN: Final = frozenset({"default", "all"})
"""Namespaces and node pools of every region; they are never deleted, and node pools of these names never change."""

Seal = Callable[[ACLAuthMethod], Awaitable[ACLAuthMethod]]


class ReplicationPage(NamedTuple):
    """Rows that were fetched, and the keys that did not fit into the answer."""

    rows: tuple[Any, ...]
    remaining: tuple[str, ...]


class AuthoritativeRegion(Protocol):
    """The authoritative region; calls raise Unavailable while it cannot be reached or refuses."""

    async def digests(self, table: str, *, min_index: int, wait_s: float) -> SharedDigests:
        """The digests of a table's shared rows, once it changed after `min_index`, or at the time limit."""
        ...

    async def rows(self, table: str, keys: Sequence[str]) -> ReplicationPage:
        """The rows with these keys, at most `KEYS_MAX`; deleted ones are missing."""
        ...


class ReplicatedKind(NamedTuple):
    """One table of shared rows, and the commands that make a copy of it."""

    table: str
    rows_name: str
    """How log lines call the rows."""
    put: Callable[[tuple[Any, ...]], AnyCommand]
    delete: Callable[[tuple[str, ...]], AnyCommand]
    is_shared: Callable[[Any], bool] = lambda _: True
    never_copied: frozenset[str] = frozenset()
    """Keys that are not copied."""
    never_deleted: frozenset[str] = frozenset()
    """Keys that are not deleted."""
    batch: int = 100
    """Rows that one command deletes."""
    copied_after: tuple[str, ...] = ()
    """Tables whose new rows are copied before: rows of this one name them."""


class Difference(NamedTuple):
    """The changes that make a copy equal, by key."""

    fetch: tuple[str, ...]
    delete: tuple[str, ...]


CLUSTER_KINDS: Final = (
    ReplicatedKind(
        Tables.namespaces.name, "namespaces", lambda rows: UpsertNamespaces(namespaces=rows),
        lambda keys: DeleteNamespaces(names=keys), never_deleted=BUILT_IN, batch=1, copied_after=(Tables.quotas.name,),
    ),
    ReplicatedKind(
        Tables.quotas.name, "quotas", lambda rows: UpsertQuotas(quotas=rows, is_copy=True),
        lambda keys: DeleteQuotas(names=keys), batch=1,
    ),
    ReplicatedKind(
        Tables.node_pools.name, "node pools", lambda rows: UpsertNodePools(pools=rows),
        lambda keys: DeleteNodePools(names=keys), never_copied=BUILT_IN, never_deleted=BUILT_IN, batch=1,
    ),
)  # fmt: skip
ACL_KINDS: Final = (
    ReplicatedKind(
        Tables.acl_tokens.name, "ACL tokens", lambda rows: ReplicateACLTokens(tokens=rows),
        lambda keys: DeleteACLTokens(accessor_ids=keys), is_shared=lambda row: row.is_global,
    ),
    ReplicatedKind(
        Tables.acl_policies.name, "ACL policies", lambda rows: UpsertACLPolicies(policies=rows),
        lambda keys: DeleteACLPolicies(names=keys),
    ),
    ReplicatedKind(
        Tables.acl_roles.name, "ACL roles", lambda rows: ReplicateACLRoles(roles=rows),
        lambda keys: DeleteACLRoles(role_ids=keys),
    ),
    ReplicatedKind(
        Tables.acl_auth_methods.name, "ACL auth methods", lambda rows: ReplicateACLAuthMethods(methods=rows),
        lambda keys: DeleteACLAuthMethods(names=keys),
    ),
    ReplicatedKind(
        Tables.acl_binding_rules.name, "ACL binding rules", lambda rows: ReplicateACLBindingRules(rules=rows),
        lambda keys: DeleteACLBindingRules(rule_ids=keys),
    ),
)  # fmt: skip


def difference(authoritative: SharedDigests, own: dict[str, str], kind: ReplicatedKind) -> Difference:
    """What to fetch and what to delete; a table that `is_new` deletes nothing."""
    fetch = sorted(
        key for key, digest in authoritative.digests.items() if own.get(key) != digest and key not in kind.never_copied
    )
    deleted = sorted(key for key in own if key not in authoritative.digests and key not in kind.never_deleted)
    return Difference(tuple(fetch), () if is_new(authoritative, kind) else tuple(deleted))


def is_new(authoritative: SharedDigests, kind: ReplicatedKind) -> bool:
    """Whether the table was never written: a new state has only built-in rows."""
    return authoritative.index <= FIRST_INDEX and authoritative.digests.keys() <= kind.never_deleted


class Replication:
    """The replication into one region."""

    def __init__(
        self, replica: Replica, authority: AuthoritativeRegion, metrics: Metrics, *, seal: Seal | None = None
    ) -> None:
        """`seal` seals the secrets of a login method with a key of this region; None: access control is off here."""
        self._replica = replica
        self._authority = authority
        self._metrics = metrics
        self._kinds = CLUSTER_KINDS + (() if seal is None else ACL_KINDS)
        self._seal = seal
        self._undeletable: dict[str, set[str]] = {}
        """Rows that could not be deleted, by table: each is logged once."""
        self._refused: dict[str, str] = {}
        """Why a token is not copied, by accessor id: each is logged once."""

    async def run(self) -> None:
        """Replicate until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(self._forever(kind))

    async def _forever(self, kind: ReplicatedKind) -> None:
        index, pause_s, problem = 0, PAUSE_FIRST_S, ""
        env = self._replica.env
        while True:
            try:
                index = await self._round(kind, index)
            except YurtError as error:
                self._metrics.count("replication.failed")
                if str(error) != problem:
                    problem = str(error)
                    log.warning("replication failed, nothing is deleted: what=%r error=%r", kind.rows_name, problem)
                await env.sleep(pause_s * (1 + env.random()))
                pause_s, index = min(pause_s * 2, PAUSE_MAX_S), 0
            else:
                self._metrics.count("replication.pulled")
                if problem:
                    log.info("replication works again: what=%r", kind.rows_name)
                pause_s, problem = PAUSE_FIRST_S, ""
                await env.sleep(ROUND_MIN_S)

    async def _round(self, kind: ReplicatedKind, index: int) -> int:
        """Make the rows equal once; returns the index to wait past."""
        wait_s = UNDELETABLE_WAIT_S if self._undeletable.get(kind.table) else WAIT_S
        authoritative = await self._authority.digests(kind.table, min_index=index, wait_s=wait_s)
        # A table that was never written has index 0, and a query that waits past 0 does not wait.
        reached = max(authoritative.index, FIRST_INDEX)
        if reached < index:
            log.warning(
                "the authoritative region was restored, its index is lower: what=%r index=%d before=%d",
                kind.rows_name, authoritative.index, index,
            )  # fmt: skip
        ours = await self._digests(kind)
        changes = difference(authoritative, ours, kind)
        if is_new(authoritative, kind) and ours.keys() - kind.never_deleted:
            log.warning("the authoritative region is new and has none, the copies stay: what=%r", kind.rows_name)
        deleted = await self._delete(kind, changes.delete)
        if changes.fetch:
            for other in (each for each in self._kinds if each.table in kind.copied_after):
                await self._fetch_new(other)
        await self._fetch(kind, changes.fetch)
        if deleted or changes.fetch:
            log.info("replicated: what=%r deleted=%d fetched=%d", kind.rows_name, deleted, len(changes.fetch))
        return reached

    async def _fetch_new(self, kind: ReplicatedKind) -> None:
        """Copy new or different rows, without deletions."""
        authoritative = await self._authority.digests(kind.table, min_index=0, wait_s=0)
        await self._fetch(kind, difference(authoritative, await self._digests(kind), kind).fetch)

    async def _digests(self, kind: ReplicatedKind) -> dict[str, str]:
        digests: dict[str, str] = {}
        async for part in self._replica.turns.slices(self._replica.state.table(kind.table).items(), SLICE):
            digests.update((key, row_digest(row)) for key, row in part if kind.is_shared(row))
        return digests

    async def _fetch(self, kind: ReplicatedKind, keys: Sequence[str]) -> None:
        """Fetch and store rows, as many at a time as a command carries."""
        missing = list(keys)
        while missing:
            batch, rest = missing[:KEYS_MAX], missing[KEYS_MAX:]
            page = await self._authority.rows(kind.table, batch)
            if len(page.remaining) >= len(batch):
                raise Unavailable(f"the authoritative region answers none of the {kind.rows_name} that it lists")
            key_of = TABLES[kind.table].key_of
            assert key_of is not None, kind.table
            if any(key_of(row) not in batch or not kind.is_shared(row) for row in page.rows):
                raise Invalid(f"the authoritative region answered with {kind.rows_name} that were not asked for")
            rows = await self._storable(kind, page.rows)
            if rows:
                await self._store(kind, rows)
            missing = [*page.remaining, *rest]

    async def _store(self, kind: ReplicatedKind, rows: tuple[Any, ...]) -> None:
        """Store rows; where one waits for the upgrade of a server of this region, the others do not wait with it."""
        try:
            await self._replica.propose(kind.put(rows))
        except Conflict as refused:
            if refused.reason is not Reason.UPGRADE_UNFINISHED or len(rows) == 1:
                raise
            waiting: Conflict | None = None
            for row in rows:
                try:
                    await self._replica.propose(kind.put((row,)))
                except Conflict as error:
                    waiting = error
            if waiting is not None:
                raise waiting from None

    async def _storable(self, kind: ReplicatedKind, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        """The rows as this region stores them."""
        if kind.table == Tables.acl_tokens.name:
            return self._accepted(rows)
        if kind.table == Tables.acl_auth_methods.name and self._seal is not None:
            return tuple([await self._seal(row) for row in rows])
        return rows

    def _accepted(self, tokens: Iterable[Any]) -> tuple[Any, ...]:
        """The tokens that `apply` will store; the others are logged, once for each reason."""
        accepted = []
        for token in tokens:
            reason = token_refusal(self._replica.state, token)
            if not reason:
                accepted.append(token)
                self._refused.pop(token.accessor_id, None)
            elif self._refused.get(token.accessor_id) != reason:
                self._refused[token.accessor_id] = reason
                log.warning("global ACL token is not replicated: accessor_id=%s reason=%r", token.accessor_id, reason)
        return tuple(accepted)

    async def _delete(self, kind: ReplicatedKind, keys: Sequence[str]) -> int:
        """Delete what can be deleted, in batches, and one by one where a batch is refused; returns the number."""
        count, undeletable = 0, self._undeletable.setdefault(kind.table, set())
        undeletable &= set(keys)
        for start in range(0, len(keys), kind.batch):
            batch = tuple(keys[start : start + kind.batch])
            if await self._is_deleted(kind, batch, is_last=len(batch) == 1):
                count += len(batch)
            elif len(batch) > 1:
                for key in batch:
                    count += await self._is_deleted(kind, (key,), is_last=True)
        return count

    async def _is_deleted(self, kind: ReplicatedKind, keys: tuple[str, ...], *, is_last: bool) -> bool:
        state = self._replica.state
        basis = tuple(expectation(state, kind.table, key) for key in keys) if kind.batch > 1 else ()
        command = kind.delete(keys)
        try:
            await self._replica.propose(replace(command, based_on=basis))
        except Unavailable:
            raise
        except YurtError as error:
            if is_last and keys[0] not in self._undeletable[kind.table]:
                self._undeletable[kind.table].add(keys[0])
                log.warning(
                    "kept although the authoritative region deleted it: what=%r error=%s", kind.rows_name, error
                )
            return False
        self._undeletable[kind.table].difference_update(keys)
        return True
